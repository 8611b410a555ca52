"""Initialization from another run: fine-tuning after training with a frozen encoder."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import keras

from sat_tf import runs
from sat_tf.errors import invalid_value
from sat_tf.models.captioner import Captioner
from sat_tf.vocabulary import Vocabulary


def start_from(
    run_dir: str | Path,
    model: Captioner,
    vocabulary: Vocabulary,
    name: str = "--init-from",
    kind: str = "key",
) -> None:
    """Gives a captioner the best weights of what `sat_tf.load` reads, including the encoder's.

    The optimizer's state and the baseline are not among them.

    Raises:
        ValueError: It is no finished run, or has another vocabulary or other shapes.
    """
    try:
        found = runs.load_captioner(run_dir)
        if found.vocabulary != vocabulary:
            raise runs.RunError(_difference(found.vocabulary, vocabulary))
        pairs = _pairs(found.model, model)
    except runs.RunError as error:
        expected = "a finished run with the vocabulary and the shapes of this one"
        got = f"{str(run_dir)!r}: {str(error).rstrip('.')}"
        raise invalid_value(name, expected, got, kind) from error
    for theirs, ours in pairs:
        ours.assign(theirs.numpy())


def _pairs(found: Captioner, model: Captioner) -> list[tuple[keras.Variable, keras.Variable]]:
    """Pairs the corresponding weights of two captioners."""
    names = [captioner.encoder.backbone for captioner in (found, model)]
    if names[0] != names[1]:
        raise runs.RunError(f"its encoder is {names[0]}, this one's {names[1]}")
    pairs = []
    for part in ("encoder", "decoder"):
        theirs, ours = getattr(found, part).weights, getattr(model, part).weights
        if len(theirs) != len(ours):
            left, right = _names(theirs), _names(ours)
            only = _some(sorted((left - right) + (right - left)))
            raise runs.RunError(
                f"its {part} has {len(theirs)} weights, this one {len(ours)} (only one has {only})"
            )
        pairs += zip(theirs, ours, strict=True)
    for theirs, ours in pairs:
        if theirs.shape != ours.shape:
            message = f"its weight {theirs.path} is {_size(theirs)}, this one {_size(ours)}"
            raise runs.RunError(message)
    return pairs


def _names(weights: list[keras.Variable]) -> Counter[str]:
    """Layer and name of weights, without the numbers by which Keras tells layers apart."""
    ends = ("/".join(weight.path.split("/")[-2:]) for weight in weights)
    return Counter(re.sub(r"_\d+(?=/)", "", end) for end in ends)


def _some(names: list[str], shown: int = 4) -> str:
    rest = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + rest


def _size(variable: keras.Variable) -> str:
    return " x ".join(map(str, variable.shape))


def _difference(theirs: Vocabulary, ours: Vocabulary) -> str:
    differing = sorted(set(theirs.words) ^ set(ours.words))
    which = f"only one has {differing[0]!r}" if differing else "their order differs"
    return (
        f"it has {len(theirs)} words, the training captions have {len(ours)} ({which}). Use the "
        "same captions, `--data.tokens`, `--data.min_count` and `--data.vocabulary_size`"
    )
