"""Trained captioners: found by name, loaded, captioned with, drawn."""
