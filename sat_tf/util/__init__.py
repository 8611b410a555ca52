"""Errors, files, settings and the start and end of commands."""
