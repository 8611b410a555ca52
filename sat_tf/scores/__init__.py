"""BLEU, CIDEr, METEOR and ROUGE-L of captions, and the tokens that they are over.

`from sat_tf.scores import bleu, cider, meteor, rouge_l, tokenize`: each takes a list of captions
and a list of the references of each. Nothing here loads TensorFlow or starts another program.
docs/metrics.md defines the scores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sat_tf.scores.meteor_words import TablesError

if TYPE_CHECKING:
    from sat_tf.scores.captions import Score, bleu, cider, meteor, rouge_l, tokenize

__all__ = ["Score", "TablesError", "bleu", "cider", "meteor", "rouge_l", "tokenize"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sat_tf.scores import captions

    return getattr(captions, name)
