"""The model of a run: its precision, its first weights, its optimizer and its objective."""

from __future__ import annotations

import dataclasses
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sat_tf.captioner import Captioner
from sat_tf.errors import RunError, invalid_value
from sat_tf.objectives import make_objective
from sat_tf.objectives.terms import Objective
from sat_tf.trained import runs
from sat_tf.vocabulary import SPECIAL_TOKENS, START, Vocabulary
from training.config import RunConfig
from training.inputs import Data
from training.optimizers import make_optimizer
from training.recipes import NEW_WORDS
from training.run_state.checkpoints import unfinished_note

WORTH = 1.1
"""Least speed-up of products that makes bfloat16 worth it: a smaller one is lost in casts."""
_PRODUCTS, _ROUNDS = 4, 4
_SHOWN = 4  # names of weights in a message


def new_model(
    config: RunConfig, vocabulary_size: int, load_encoder_weights: bool = True
) -> Captioner:
    """Builds the model with an untrained decoder, not compiled."""
    policy = "mixed_bfloat16" if config.fit.precision == "bfloat16" else "float32"
    return Captioner(config.captioner, vocabulary_size, load_encoder_weights, dtype=policy)


def first_model(
    config: RunConfig,
    data: Data,
    begun: bool = False,
    strategy: tf.distribute.Strategy | None = None,
    say: Callable[[str], Any] = print,
) -> Captioner:
    """Builds a run's model with its first weights: new ones, or those of `init_from`.

    Args:
        config: The run's configuration.
        data: The run's data.
        begun: The run has a checkpoint, whose weights it takes: the files and the run that it
            started from may be gone.
        strategy: Distributes work over devices; None for the present one.
        say: Receives a message about the other run.

    Raises:
        ValueError: See `start_from`.
    """
    origin = None if begun else config.init_from
    with (strategy or tf.distribute.get_strategy()).scope():
        model = new_model(config, len(data.vocabulary), not begun and origin is None)
    if origin is not None:
        say(_learn_on(origin, model, data))
    return model


def _learn_on(origin: str, model: Captioner, data: Data) -> str:
    """Gives a model the weights of another run; returns lines that say which words it knows."""
    words, special = data.vocabulary, len(SPECIAL_TOKENS)
    counts = np.bincount(data.table.tokens.flat, minlength=len(words))
    found = start_from(origin, model, words, counts=counts)
    theirs, notes = found.vocabulary, unfinished_note(found.path)
    said = f"Initialized with the weights of {origin}"
    if theirs != words:
        own = counts[special:] > 0  # the others are kept
        known, total = np.count_nonzero(own & (_rows(theirs, words)[special:] >= 0)), own.sum()
        said += f", which knows {known:,} of the {total:,} {words.unit}"
        if 2 * known < total:
            best = f"`{' '.join(NEW_WORDS)}` was best for captions in another language"
            notes = (f"Most words are new to it: {best}.", *notes)
        if not known:
            gives = "It gives encoder, attention and LSTM, and no word. If the captions are in its "
            notes = (f"{gives}language, check `--data.tokens` and the caption file.", *notes)
    return "\nNote: ".join([f"{said}.", *notes])


def start_from(
    run_dir: str | Path,
    model: Captioner,
    vocabulary: Vocabulary,
    name: str = "--init-from",
    kind: str = "key",
    counts: np.ndarray | None = None,
) -> runs.TrainedCaptioner:
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
        found = runs.load_captioner(run_dir)
        rows = None if found.vocabulary == vocabulary else _rows(found.vocabulary, vocabulary)
        if rows is not None and counts is None:
            differing = sorted(set(found.vocabulary.words) ^ set(vocabulary.words))
            which = f"only one has {differing[0]!r}" if differing else "their order differs"
            raise RunError(
                f"it has {len(found.vocabulary)} words, the training captions have "
                f"{len(vocabulary)} ({which}). Use the same captions, `--data.tokens`, "
                "`--data.min_count` and `--data.vocabulary_size`"
            )
        encoders = found.model.encoder.backbone, model.encoder.backbone
        if encoders[0] != encoders[1]:
            raise RunError(f"its encoder is {encoders[0]}, this one's {encoders[1]}")
        pairs = []
        for part in ("encoder", "decoder"):
            theirs, ours = getattr(found.model, part).weights, getattr(model, part).weights
            if len(theirs) != len(ours):
                left, right = _names(theirs), _names(ours)
                only = sorted((left - right) + (right - left))
                more = f" and {len(only) - _SHOWN} more" if len(only) > _SHOWN else ""
                raise RunError(
                    f"its {part} has {len(theirs)} weights, this one {len(ours)} (only one has "
                    f"{', '.join(only[:_SHOWN])}{more})"
                )
            pairs += zip(theirs, ours, strict=True)
        output = model.decoder.deep_output.word_projection
        axes = {id(model.decoder.embedding.embeddings): 0, id(output.kernel): 1, id(output.bias): 0}
        values = []
        for theirs, ours in pairs:
            value = theirs.numpy()
            if rows is not None and id(ours) in axes:
                value = _of_words(value, axes[id(ours)], rows, counts)
            if value.shape != ours.shape:
                sizes = [" x ".join(map(str, shape)) for shape in (theirs.shape, ours.shape)]
                raise RunError(f"its weight {theirs.path} is {sizes[0]}, this one {sizes[1]}")
            values.append(value)
    except RunError as error:
        expected = "a finished run with the vocabulary and the shapes of this one"
        if counts is not None:
            expected = "a finished run with the encoder and the shapes of this one (without "
            expected += "`--encoder.name` and widths, those of that run are taken)"
        got = f"{str(run_dir)!r}: {str(error).rstrip('.')}"
        raise invalid_value(name, expected, got, kind) from error
    for (_, ours), value in zip(pairs, values, strict=True):
        ours.assign(value)
    return found


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


def _names(weights: list[keras.Variable]) -> Counter[str]:
    """Layer and name of weights, without the numbers by which Keras tells layers apart."""
    ends = ("/".join(weight.path.split("/")[-2:]) for weight in weights)
    return Counter(re.sub(r"_\d+(?=/)", "", end) for end in ends)


def compile_model(
    model: Captioner, config: RunConfig, steps: int, objective: Objective | None = None
) -> None:
    """Gives the model its optimizer and its objective.

    Args:
        model: The captioner.
        config: The run's configuration.
        steps: Steps per epoch, for the schedule.
        objective: What to minimise; None learns the captions of the batch.
    """
    optimizer, fit = config.optimizer, config.fit
    if objective is None:
        objective = make_objective(config.attention, fit.label_smoothing, fit.distillation_weight)
    model.compile(
        optimizer=make_optimizer(
            optimizer,
            steps,
            fit.epochs,
            model.encoder.trainable_variables,
            optimizer.encoder_learning_rate,
        ),
        objective=objective,
        clip_norm=optimizer.clip_norm,
        seed=config.seed,
        jit_compile=fit.jit_compile,
    )


def describe_model(model: Captioner, batch_size: int) -> str:
    """Describes encoder and decoder in two sentences, then the objective, a constant per line."""
    encoder, (height, width) = model.encoder, model.encoder.grid
    count = lambda layer: sum(int(tf.size(v)) for v in layer.trainable_variables) / 1e6  # noqa: E731
    part = "frozen"
    if model.config.encoder.trainable:
        first = model.config.encoder.trainable_from
        part = f"trained{f' from {first}' if first else ''} ({count(encoder):.2f} M weights)"
    parts = (
        f"Encoder: {model.config.encoder.name}, {encoder.tap}, {height} x {width} x "
        f"{encoder.annotation_dim}, {part}. Decoder: {model.config.attention.kind} attention, "
        f"{count(model.decoder):.2f} M weights."
    )
    constants = model.objective.describe(batch_size).items()
    return "\n".join([parts, *(f"  {name}: {value}" for name, value in constants)])


def resolve_precision(config: RunConfig) -> RunConfig:
    """Replaces precision `auto` by the faster one.

    Not every processor with bfloat16 instructions is faster with them, so one product of each is
    timed. The choice is kept in the run's configuration: a resumed run does not change it.
    """
    if config.fit.precision != "auto":
        return config
    seconds = product_seconds()
    ratio = seconds["float32"] / seconds["bfloat16"]
    precision = "bfloat16" if ratio >= WORTH else "float32"
    print(f"Precision {precision}: here products are {ratio:.1f} times as fast in bfloat16.")
    return dataclasses.replace(config, fit=dataclasses.replace(config.fit, precision=precision))


def product_seconds(side: int = 2048) -> dict[str, float]:
    """Times products of square matrices, float32 and bfloat16 in turns; the best of each."""
    best = {}
    matrices = {name: tf.ones([side, side], name) for name in ("float32", "bfloat16")}
    for number in range(_ROUNDS + 1):
        for name, matrix in matrices.items():
            start = time.perf_counter()
            for _ in range(_PRODUCTS):
                product = tf.matmul(matrix, matrix)
            product[0, 0].numpy()  # waits for a GPU
            if number:  # the first round warms up
                best[name] = min(best.get(name, float("inf")), time.perf_counter() - start)
    return best
