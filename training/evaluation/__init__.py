"""Scores of captions and maps, with intervals; reports and their page."""
