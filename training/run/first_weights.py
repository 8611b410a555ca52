"""First weights of a run: those of a captioner that it starts from, word by word."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np

from sat_tf.captioner import Captioner
from sat_tf.inference.captioning import TrainedCaptioner
from sat_tf.inference.load import load_captioner
from sat_tf.text.vocabulary import SPECIAL_TOKENS, START, Vocabulary
from sat_tf.util.errors import RunError, invalid_value
from training.data.inputs import Data
from training.run.checkpoints import unfinished_note
from training.run.recipes import NEW_WORDS


def give_weights(init_from: str, model: Captioner, data: Data) -> str:
    """Gives a run's model the weights of a trained captioner.

    Returns:
        Lines that say which words it knows.

    Raises:
        ValueError: It is not a finished run, or has other shapes.
    """
    words, special = data.vocabulary, len(SPECIAL_TOKENS)
    counts = np.bincount(data.table.tokens.flat, minlength=len(words))
    found = start_from(init_from, model, words, counts=counts)
    theirs, notes = found.vocabulary, [*unfinished_note(found.path)]
    said = f"Initialized with the weights of {init_from}"
    if theirs != words:
        own = counts[special:] > 0  # the others are kept
        known, total = np.count_nonzero(own & (_rows(theirs, words)[special:] >= 0)), own.sum()
        said += f", which knows {known:,} of the {total:,} {words.unit}"
        if 2 * known < total:
            best = f"`{' '.join(NEW_WORDS)}` was best for captions in another language"
            notes.insert(0, f"Most words are new to it: {best}.")
        if not known:
            notes.insert(
                0,
                "It gives encoder, attention and LSTM, and no word. If the captions are in its "
                "language, check `--data.tokens` and the caption file.",
            )
    return "\nNote: ".join([f"{said}.", *notes])


def start_from(
    run_dir: str | Path,
    model: Captioner,
    vocabulary: Vocabulary,
    name: str = "--init-from",
    kind: str = "key",
    counts: np.ndarray | None = None,
) -> TrainedCaptioner:
    """Gives a captioner the best weights of what `sat_tf.load` reads, including the encoder's.

    The optimizer's state and the baseline are not among them. Of another vocabulary, words that
    both have keep their rows of the embedding and the output; `_of_words` makes those of the rest.

    Args:
        run_dir: What `sat_tf.load` takes.
        model: Takes the weights.
        vocabulary: The model's.
        name: The argument that `run_dir` is, for messages.
        kind: Its kind, see `invalid_value`.
        counts: `[K]`, tokens in the training captions by id; None asks for the same vocabulary.

    Returns:
        The captioner that they are of.

    Raises:
        ValueError: It is not a finished run, or has another vocabulary or other shapes.
    """
    try:
        found = load_captioner(run_dir)
        values = _fitting(found, model, vocabulary, counts)
    except RunError as error:
        expected = "a finished run with the vocabulary and the shapes of this one"
        if counts is not None:
            expected = "a finished run with the encoder and the shapes of this one (without "
            expected += "`--encoder.name` and widths, those of that run are taken)"
        got = f"{str(run_dir)!r}: {str(error).rstrip('.')}"
        raise invalid_value(name, expected, got, kind) from error
    for ours, value in values:
        ours.assign(value)
    return found


def _fitting(
    found: TrainedCaptioner, model: Captioner, vocabulary: Vocabulary, counts: np.ndarray | None
) -> list[tuple[keras.Variable, np.ndarray]]:
    """Returns the value of each weight of encoder and decoder; a `RunError` if they do not fit."""
    rows = None if found.vocabulary == vocabulary else _rows(found.vocabulary, vocabulary)
    if rows is not None and counts is None:
        differing = sorted(set(found.vocabulary.words) ^ set(vocabulary.words))
        which = f"only one has {differing[0]!r}" if differing else "their order differs"
        raise RunError(
            f"it has {len(found.vocabulary)} words, the training captions have {len(vocabulary)} "
            f"({which}). Use the same captions, `--data.tokens`, `--data.min_count` and "
            "`--data.vocabulary_size`"
        )
    theirs, ours = found.model.encoder.backbone, model.encoder.backbone
    if theirs != ours:
        raise RunError(f"its encoder is {theirs}, this one's {ours}")
    output = model.decoder.deep_output.word_projection
    axes = {id(model.decoder.embedding.embeddings): 0, id(output.kernel): 1, id(output.bias): 0}
    values = []
    for part in ("encoder", "decoder"):
        theirs, ours = getattr(found.model, part).weights, getattr(model, part).weights
        if len(theirs) != len(ours):
            raise RunError(f"its {part} has {len(theirs)} weights, this one {len(ours)}")
        for one, own in zip(theirs, ours, strict=True):
            value = one.numpy()
            if rows is not None and id(own) in axes:
                value = _of_words(value, axes[id(own)], rows, counts)
            if value.shape != own.shape:
                sizes = [" x ".join(map(str, shape)) for shape in (one.shape, own.shape)]
                raise RunError(f"its weight {one.path} is {sizes[0]}, this one {sizes[1]}")
            values.append((own, value))
    return values


def _rows(theirs: Vocabulary, ours: Vocabulary) -> np.ndarray:
    """Returns the id that each word of ours has in theirs, or -1."""
    shared = theirs.words if theirs.unit == ours.unit else SPECIAL_TOKENS
    ids = {word: index for index, word in enumerate(shared)}
    return np.array([ids.get(word, -1) for word in ours.words])


def _of_words(theirs: np.ndarray, axis: int, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns a weight with the rows of known words, and of new ones the mean of their words.

    The bias of a new word is `log count` plus the mean of `bias - log count` over known words.

    Args:
        theirs: The weight; axis `axis` is that of words.
        axis: 0 or 1.
        rows: `[K]`, the row of each word of ours, -1 for a new one.
        counts: `[K]`.
    """
    known, ours = rows >= 0, np.take(theirs, rows, axis)
    words = np.take(theirs, range(len(SPECIAL_TOKENS), theirs.shape[axis]), axis)
    if theirs.ndim == 1:
        log_counts = np.log(np.maximum(counts, 1)).astype(theirs.dtype)
        predicted = known & (counts > 0) & (np.arange(len(rows)) != START)
        return np.where(known, ours, log_counts + (ours - log_counts)[predicted].mean())
    new = words.mean(axis, keepdims=True)
    return np.where(np.expand_dims(known, 1 - axis), ours, new)
