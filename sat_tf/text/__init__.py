"""Captions as words, words as ids, and words as text again."""
