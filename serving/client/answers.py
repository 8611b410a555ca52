"""Answers of a server as captions, and a beam of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sat_tf.vocabulary import SPECIAL_TOKENS, UNK, split_characters
from serving.client import protocol

REASONS = "reasons"
"""An output that exports of earlier versions lack."""
_RANKED = ("captions", "scores", "lengths")
_DETAILS = ("word_log_probs", "attention", "beta")
_NO_DETAILS = {"alternatives": (), "log_probs": None, "alpha": None, "beta": None}


@dataclass(frozen=True, eq=False)
class ServedCaption:
    """The server's answer for one image.

    Attributes:
        valid: Says if the server could read the image; if not, the caption is empty.
        text: The caption.
        score: log p divided by length^p, nats.
        alternatives: The other hypotheses of the beam, best first: (text, score).
        version: The version of the model that answered.
        reason: Why the image is not valid, if the export says so.
        words: The caption's words, `T` of them (characters if the model writes characters); empty
            if the call did not ask for attention.
        log_probs: `[T]`, log-probability of each word, nats; None in that case, and for an export
            of earlier versions.
        alpha: `[T, h, w]`, attention of each word; None in that case, and for a model without
            attention.
        beta: `[T]`, the gate of each word, likewise.
    """

    valid: bool
    text: str
    score: float
    alternatives: tuple[tuple[str, float], ...]
    version: int
    reason: str = ""
    words: tuple[str, ...] = ()
    log_probs: np.ndarray | None = None
    alpha: np.ndarray | None = None
    beta: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Beam:
    """Every hypothesis of one image.

    Attributes:
        captions: The hypotheses, best first, each with its words and its attention. An export
            without the signature `every_beam` gives these of the best alone.
        attention_kind: `soft`, `hard` or `none`; empty if the export does not say.
        resize: `crop` or `squash`, the fit of images to the encoder's square, likewise.
    """

    captions: tuple[ServedCaption, ...]
    attention_kind: str = ""
    resize: str = ""


def split_words(text: str, count: int) -> tuple[str, ...]:
    """Splits a caption into `count` words, or characters if it has so many of these.

    The server sends a caption as one text and its number of words. An unknown character is written
    as <unk>.
    """
    words = text.split(" ") if text else []
    if len(words) == count:
        return tuple(words)
    unknown = SPECIAL_TOKENS[UNK]
    known, *others = map(split_characters, text.split(unknown))
    characters = known + [char for part in others for char in (unknown, *part)]
    if len(characters) == count:
        return tuple(characters)
    return tuple((words + [""] * count)[:count])  # better some words than no figure


def read_captions(response: protocol.PredictResponse) -> list[ServedCaption]:
    """Reads a response: a caption per image."""
    values = {name: protocol.to_array(tensor) for name, tensor in response.outputs.items()}
    version = response.model_spec.version.value
    return [read_caption(values, row, version) for row in range(len(values["captions"]))]


def beam_of(best: ServedCaption) -> Beam:
    """Returns the beam of an export that describes the best caption alone."""
    others = [
        replace(best, text=text, score=score, words=tuple(text.split()), **_NO_DETAILS)
        for text, score in best.alternatives
    ]
    return Beam((best, *others))


def read_beam(response: protocol.PredictResponse) -> Beam:
    """Reads a response of `every_beam` for one image."""
    values = {name: protocol.to_array(tensor) for name, tensor in response.outputs.items()}
    version = response.model_spec.version.value
    kind, resize = (
        values[name][0].decode("utf-8") if name in values else ""
        for name in ("attention_kind", "resize")
    )
    captions = []
    for rank in range(values["captions"].shape[1]):
        chosen = {name: values[name][:, rank : rank + 1] for name in _RANKED}
        details = {name: values[name][:, rank] for name in _DETAILS if name in values}
        captions.append(read_caption(values | chosen | details, 0, version))
    return Beam((captions[0], *(c for c in captions[1:] if c.text)), kind, resize)


def read_caption(values: Mapping[str, np.ndarray], row: int, version: int) -> ServedCaption:
    """Reads one image's row of the outputs of an export, by their names."""
    texts = [text.decode("utf-8") for text in values["captions"][row]]
    scores = [float(score) for score in values["scores"][row]]
    pairs = zip(texts[1:], scores[1:], strict=True)
    count = int(values["lengths"][row, 0]) if "lengths" in values else 0
    log_probs, alpha, beta = (
        values[name][row, :count] if name in values else None for name in _DETAILS
    )
    return ServedCaption(
        valid=bool(values["valid"][row]),
        text=texts[0],
        score=scores[0],
        alternatives=tuple(pair for pair in pairs if pair[0]),
        version=version,
        reason=values[REASONS][row].decode("utf-8") if REASONS in values else "",
        words=split_words(texts[0], count),
        log_probs=log_probs,
        alpha=alpha,
        beta=beta,
    )
