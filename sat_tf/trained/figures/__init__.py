"""Figures drawn with Pillow and NumPy: attention maps, glimpse paths, alpha matrices."""
