"""Figures measured on demand, out of the test run."""
