"""Image files to pixels: the one preprocessing, in training and in the exported graph.

pillow.py    what Pillow does to a file first: turn it upright, convert TIFF, HEIC and AVIF
headers.py   what a file's header asks for, checked in the graph
decoding.py  pixels, and the encoder's square of them

`decode`, `resize` and `load` are plain TensorFlow operations, so they run eagerly, in a `tf.data`
pipeline and inside a SavedModel alike. `read_upright`, `upright` and `to_rgb` need Pillow alone:
TensorFlow is imported with the first name that needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sat_tf.images.decoding import POLICIES, decode, load, read_error, resize
    from sat_tf.images.pillow import read_upright, to_rgb, upright

__all__ = [
    "MAX_PIXELS",
    "MAX_SIDE",
    "POLICIES",
    "SUFFIXES",
    "VERSION",
    "decode",
    "load",
    "read_error",
    "read_upright",
    "resize",
    "to_rgb",
    "upright",
]

SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff")
SUFFIXES += (".heic", ".heif", ".avif")
"""Names of the files that are captioned in a folder end in one of these."""

VERSION = 3
"""Part of the feature store's fingerprint: raise it when the pixels that `load` gives change."""

MAX_SIDE = 2**15
"""Pixels; a longer strip would cost gigabytes while it is scaled."""
MAX_PIXELS = 2**26
"""Pixels of the whole image, 8192 x 8192.

Decoded they take 201 MB; a progressive JPEG of four channels takes 703 MB meanwhile.
"""

_HOMES = dict.fromkeys(("POLICIES", "decode", "load", "read_error", "resize"), "decoding")
_HOMES |= dict.fromkeys(("read_upright", "to_rgb", "upright"), "pillow")


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
