"""Image files to pixels: the one preprocessing, in training and in the exported graph.

pillow.py    by Pillow alone: any format, turned upright; pixels
decoding.py  JPEG and PNG as TensorFlow operations, and the encoder's square of them
"""

from __future__ import annotations

SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff")
SUFFIXES += (".heic", ".heif", ".avif")
"""Names of the files that are captioned in a folder end in one of these."""

VERSION = 4
"""Part of the feature store's fingerprint: raise it when the pixels of images change."""

MAX_SIDE = 2**15
"""Pixels; a longer strip would cost gigabytes while it is scaled."""
MAX_PIXELS = 2**26
"""Pixels of the whole image, 8192 x 8192.

Decoded they take 201 MB; a progressive JPEG of four channels takes 703 MB meanwhile.
"""
MAX_SCANS = 64
"""Scans of a JPEG; encoders write up to about twelve, and each takes as long as the first."""
