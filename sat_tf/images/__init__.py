"""From an image file to pixels: the one preprocessing, in training and in the exported graph.

`decode`, `resize` and `load` are plain TensorFlow operations, so they run eagerly, in a `tf.data`
pipeline and inside a SavedModel alike. `read_upright`, `upright` and `to_rgb` need Pillow alone:
TensorFlow is imported with the first name that needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sat_tf.images.conversion import read_upright
    from sat_tf.images.decoding import decode, load, read_error
    from sat_tf.images.orientation import to_rgb, upright
    from sat_tf.images.resizing import POLICIES, resize

__all__ = [
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
"""Names of the files that are captioned in a folder end in one of these."""

# Part of the feature store's fingerprint: raise it when the pixels `load` gives change.
VERSION = 3

_HOMES = {
    "conversion": ("read_upright",),
    "decoding": ("decode", "load", "read_error"),
    "orientation": ("to_rgb", "upright"),
    "resizing": ("POLICIES", "resize"),
}


def __getattr__(name: str):
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
