"""Whole models, one file each."""
