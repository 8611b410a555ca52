"""Several devices and processes, which code for one does not see."""
