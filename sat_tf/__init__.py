"""Show, Attend and Tell (Xu et al., 2015, arXiv:1502.03044) in TensorFlow 2 and Keras 3.

`sat_tf.load(RUN).caption(IMAGE)` captions an image with a trained run, without TensorFlow. The
layers are Keras layers: `sat_tf.RNNDecoder(vocabulary_size=1000)(annotations, words)`.

Names of this package that need TensorFlow load it when they are first used, with most of its log
off unless `TF_CPP_MIN_LOG_LEVEL` says otherwise.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sat_tf.captioner import Captioner
    from sat_tf.config import CaptionerConfig, SearchConfig
    from sat_tf.inference.captions import Caption
    from sat_tf.inference.load import load
    from sat_tf.layers.attention import BahdanauAttention
    from sat_tf.layers.decoder import RNNDecoder
    from sat_tf.layers.encoder import Encoder
    from sat_tf.layers.lstm import AttentionLSTMCell, DeepOutput, InitialState

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read by TensorFlow when it is imported

__version__ = "0.1.0"

__all__ = [
    "AttentionLSTMCell",
    "BahdanauAttention",
    "Caption",
    "Captioner",
    "CaptionerConfig",
    "DeepOutput",
    "Encoder",
    "InitialState",
    "RNNDecoder",
    "SearchConfig",
    "Vocabulary",
    "load",
]

_HOMES = {
    "AttentionLSTMCell": "sat_tf.layers.lstm",
    "BahdanauAttention": "sat_tf.layers.attention",
    "Caption": "sat_tf.inference.captions",
    "Captioner": "sat_tf.captioner",
    "CaptionerConfig": "sat_tf.config",
    "DeepOutput": "sat_tf.layers.lstm",
    "Encoder": "sat_tf.layers.encoder",
    "InitialState": "sat_tf.layers.lstm",
    "RNNDecoder": "sat_tf.layers.decoder",
    "SearchConfig": "sat_tf.config",
    "Vocabulary": "sat_tf.text.vocabulary",
    "load": "sat_tf.inference.load",
}


def __getattr__(name: str) -> Any:
    public = name in __all__
    if not public and (
        not name.isidentifier() or name[0] == "_" or find_spec(f"{__name__}.{name}") is None
    ):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name] if public else f"{__name__}.{name}"
    module = import_module(home)
    return getattr(module, name) if public else module


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
