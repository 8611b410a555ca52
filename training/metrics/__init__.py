"""Scores of captions and of attention maps, and their bootstrap intervals."""
