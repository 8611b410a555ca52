"""Captions without TensorFlow: `load(FOLDER).caption(image)` on LiteRT, NumPy and Pillow alone.

`python -m serving.export --format litert` writes the folder; `docs/edge.md` describes it.
"""

from sat_tf.lite.captioner import LiteRTCaptioner, load

__all__ = ["LiteRTCaptioner", "load"]
