"""Teachers."""
