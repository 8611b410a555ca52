"""Batches of examples made of digits: fresh ones to train on, fixed ones to score.

A batch depends only on its position, (seed, epoch, step) or (split, number), so a resumed run sees
the same batches as an uninterrupted one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import tensorflow as tf

from sat_tf.errors import invalid_value
from training.data.batches import prefetched
from training.data.digits import canvases, warps
from training.data.digits.config import CanvasData, DigitData, PairData, StripsData
from training.data.digits.mnist import Digits
from training.data.examples import SPLITS

Draw = Callable[[Digits, np.ndarray, np.random.Generator, DigitData], dict[str, np.ndarray]]
"""`(digits, rows [B, k], rng, data set) -> arrays [B, ...]`; `images` are uint8 `[B, H, W]`."""

_DRAW: dict[type[DigitData], Draw] = {
    StripsData: warps.draw_strips,
    CanvasData: canvases.draw_canvases,
    PairData: canvases.draw_pairs,
}
_SCORED_AT_ONCE = 100  # examples per scored batch; what is drawn for them depends on it
_TRAINING = len(SPLITS)  # seeds training differently from the splits that are scored


def plan(digits: int, examples: int, columns: int, rng: np.random.Generator) -> np.ndarray:
    """Chooses the digits of each example, int `[N, k]`.

    Each column has its own order of the digits, and uses each once before it uses any again.

    Args:
        digits: Number of digits.
        examples: N.
        columns: k, digits per example.
        rng: Draws the orders.
    """
    rounds = -(-examples // digits)
    orders = [
        np.concatenate([rng.permutation(digits) for _ in range(rounds)]) for _ in range(columns)
    ]
    return np.stack(orders, axis=1)[:examples]


def epoch_steps(digits: Digits, config: DigitData, batch_size: int) -> int:
    """Returns the number of batches per epoch; the remainder is not used.

    Raises:
        ValueError: There are too few examples for one batch.
    """
    examples = config.examples or len(digits)
    if examples < batch_size:
        expected = f"at most the {examples} examples of an epoch"
        raise invalid_value("--fit.batch_size", expected, batch_size, "key")
    return examples // batch_size


def training_batches(
    digits: Digits, config: DigitData, batch_size: int, seed: int, epoch: int, step: int = 0
) -> tf.data.Dataset:
    """Returns endless shuffled batches that start at a step of an epoch.

    Returns:
        Batches as `as_model_input` gives them.
    """
    steps = epoch_steps(digits, config, batch_size)
    draw, columns = _DRAW[type(config)], config.digits_per_example

    @functools.lru_cache(maxsize=2)
    def plan_of(epoch: int) -> np.ndarray:
        rng = np.random.default_rng([seed, _TRAINING, epoch])
        return plan(len(digits), steps * batch_size, columns, rng)

    def batch(index: int) -> dict[str, np.ndarray]:
        epoch, step = divmod(index, steps)
        rng = np.random.default_rng([seed, _TRAINING, epoch, step])
        rows = plan_of(epoch)[step * batch_size : (step + 1) * batch_size]
        return draw(digits, rows, rng, config)

    # One example tells names, types and shapes.
    sample = draw(digits, np.zeros([1, columns], np.int64), np.random.default_rng(0), config)

    def read(index: tf.Tensor) -> dict[str, tf.Tensor]:
        parts = tf.numpy_function(
            lambda number: tuple(batch(int(number)).values()),
            [index],
            [part.dtype for part in sample.values()],
        )
        shapes = [[batch_size, *part.shape[1:]] for part in sample.values()]
        shaped = map(tf.ensure_shape, parts, shapes)
        return as_model_input(dict(zip(sample, shaped, strict=True)))

    return prefetched(read, epoch * steps + step)


def scoring_batches(
    digits: Digits, config: DigitData, split: str
) -> Iterator[dict[str, tf.Tensor]]:
    """Yields the examples of a split, as many as it has digits and the same in every run.

    Each digit comes once in each place of an example.
    """
    draw, code = _DRAW[type(config)], SPLITS.index(split)
    rows = plan(
        len(digits), len(digits), config.digits_per_example, np.random.default_rng([0, code])
    )
    for number, start in enumerate(range(0, len(rows), _SCORED_AT_ONCE)):
        rng = np.random.default_rng([0, code, number])
        batch = draw(digits, rows[start : start + _SCORED_AT_ONCE], rng, config.scored())
        yield as_model_input({name: tf.constant(part) for name, part in batch.items()})


def as_model_input(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Casts images to float32 `[B, H, W, 1]` in [0, 1] and integers to int32."""
    done = {
        name: tf.cast(part, tf.int32 if part.dtype.is_integer else tf.float32)
        for name, part in batch.items()
    }
    done["images"] = tf.cast(batch["images"], tf.float32)[..., tf.newaxis] / 255.0
    return done
