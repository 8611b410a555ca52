"""Captions without TensorFlow: a captioner as LiteRT graphs, over NumPy and Pillow.

`load(FOLDER).caption(image)` captions with an export (`python -m serving.export --format litert`).
`sat_tf.load` keeps the graphs of the captioners that it is asked for in the cache.

captioner.py  the files of an export, three graphs, and the loop between them
runtime.py    graphs that are open in LiteRT
search.py     beam search and consensus in NumPy
cache.py      graphs that this library made for itself, found again by what they were made of
graphs.py     from a captioner to graphs, with TensorFlow
"""

from sat_tf.trained.lite.captioner import LiteRTCaptioner, load

__all__ = ["LiteRTCaptioner", "load"]
