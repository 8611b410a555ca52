"""Digit models: their common base, layers, the loss of a classifier, and figures."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from PIL import Image, ImageDraw

from sat_tf.inference.figures import GLOW, INK, PAPER, write_text
from sat_tf.ops import at_least_one_row, replica_seed
from sat_tf.train_step import Batch, Terms, TrainableModel, weighted


class Score(NamedTuple):
    """A score of each example of a batch; reports give the weighted mean."""

    values: tf.Tensor
    """float32 `[B, ...]`, in the report's units: percent for errors and accuracies."""
    weights: tf.Tensor | None = None
    """float32, the same shape; None for ones."""


class Reading(NamedTuple):
    """Places where a model looked in each image, look by look, and its answer after each.

    B images, T looks, K classes.
    """

    corners: tf.Tensor
    """`[B, T, 4, 2]`, of the finest patch: (x, y) as shares of the image's sides, y down; the
    patch's top left corner first, then clockwise."""
    patches: tf.Tensor
    """`[B, T, h, w, scales]`, the finest first, each twice as wide as the one before."""
    logits: tf.Tensor
    """`[B, T, K]`. Models learn to answer after their last look."""


class DigitModel(TrainableModel):
    """A model that learns from batches of digits, with a dataclass of its settings.

    A subclass keeps its weights in layers that are its attributes, and defines `scores`. Its
    batches hold `images` float32 `[B, H, W, 1]` in [0, 1], and arrays for its objective.
    """

    answers: Sequence[str] | None = None
    """Names of the classes in drawings; None for their numbers."""
    weights_sha256: str | None = None
    """SHA-256 (hexadecimal) of the file of its weights, if they were loaded from a run's."""

    def __init__(self, config: Any, **kwargs) -> None:
        super().__init__(**kwargs)
        self.config = config

    def scores(self, batch: Batch, seed: tf.Tensor) -> dict[str, Score]:
        """Scores a batch; `error` (percent) is among the scores."""
        raise NotImplementedError

    def figures(self, batch: Batch, seed: tf.Tensor) -> list[np.ndarray]:
        """Draws attention on each example, uint8 `[., ., 3]`; nothing by default."""
        return []

    def verdict(self, label: int, predicted: int) -> str:
        """Titles a drawing with the label and the prediction."""
        names = range(max(label, predicted) + 1) if self.answers is None else self.answers
        return f"{names[label]}, read as {names[predicted]}"

    def saved_layers(self) -> dict[str, keras.layers.Layer]:
        """Returns the layers of the model by attribute name."""
        # Keras' bookkeeping is in attributes that begin with an underscore.
        return {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, keras.layers.Layer) and not name.startswith("_")
        }


def predicted_class(logits: tf.Tensor) -> tf.Tensor:
    """int32 `[...]`, the most probable class of logits `[..., classes]`."""
    return tf.argmax(logits, axis=-1, output_type=tf.int32)


class ClassificationObjective:
    """Mean negative log-likelihood of the labels, of a model `(images, seed) -> (logits, _)`."""

    log_names = ("nll", "accuracy")

    def __call__(self, model, batch: Batch, seed: tf.Tensor) -> Terms:
        """Computes the loss of a batch of `images` and `labels`; see `Objective`."""
        labels = batch["labels"]
        logits, _ = model(batch["images"], replica_seed(seed))
        nll = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        correct = tf.cast(predicted_class(logits) == labels, tf.float32)
        means = {"nll": nll, "accuracy": 100.0 * tf.reduce_mean(correct)}
        return Terms(nll, weighted(means, tf.cast(tf.size(labels), tf.float32)))


def dense(inputs: int, units: int, activation: str | None = None, **kwargs) -> keras.layers.Dense:
    """Makes a dense layer from `inputs` to `units` features; `**kwargs` are for Keras."""
    layer = keras.layers.Dense(units, activation, **kwargs)
    layer.build((None, inputs))
    return layer


class _Stack(keras.Sequential):
    """A stack that a replica without images may call."""

    def call(self, inputs: tf.Tensor, training: bool | None = None, mask: Any = None) -> tf.Tensor:
        call = functools.partial(super().call, training=training, mask=mask)
        return at_least_one_row(call, inputs)


def sequential(
    layers: Sequence[keras.layers.Layer], shape: Sequence[int], name: str
) -> keras.Sequential:
    """Stacks layers over inputs of a shape, given without the batch."""
    stack = _Stack(list(layers), name=name)
    stack.build((None, *shape))
    return stack


def convolution(filters: int, size: int, **kwargs) -> keras.layers.Conv2D:
    """Makes a convolution of `size` x `size` with ReLU that keeps the sides; not built."""
    return keras.layers.Conv2D(filters, size, padding="same", activation="relu", **kwargs)


# --- figures ---

_TILE = 168  # pixels, side
_SCALE = 3  # of a strip's pixels
_ROW = 26  # pixels, of a query
_GAP = 10
_TEXT = 14
_FIRST = (64, 148, 255)  # frame of the first glimpse


def alpha_matrix_figure(
    strip: np.ndarray,
    labels: Sequence[int],
    alpha: np.ndarray,
    probability: np.ndarray,
    present: np.ndarray,
) -> np.ndarray:
    """Draws a strip, and below it the attention of each query over its portions; uint8 `[., ., 3]`.

    The warmer a cell, the higher its alpha (percent). A row ends with the probability that its
    label is present, marked if it is wrong.

    Args:
        strip: uint8 `[H, W]`, its portions side by side.
        labels: Q labels asked for.
        alpha: float `[Q, L]`; the last column is the null slot.
        probability: float `[Q]`, that the label is present.
        present: bool `[Q]`, True if it is.
    """
    cell = strip.shape[0] * _SCALE
    wide = strip.shape[1] * _SCALE
    enlarged = Image.fromarray(strip).resize((wide, cell), Image.Resampling.NEAREST)
    left, top = 4 * _TEXT, _GAP + cell + 2 * _TEXT
    right = left + alpha.shape[1] * cell
    sheet = Image.new("RGB", (right + 10 * _TEXT, top + len(labels) * _ROW + _GAP), PAPER)
    sheet.paste(enlarged, (left, _GAP))
    draw = ImageDraw.Draw(sheet)
    portions = strip.shape[1] // strip.shape[0]
    for column in range(alpha.shape[1]):
        name = f"{column + 1}" if column < portions else "nowhere"
        write_text(draw, (left + column * cell + 4, top - round(1.4 * _TEXT)), name, _TEXT)
    for row, label in enumerate(labels):
        middle = top + row * _ROW + (_ROW - _TEXT) // 2
        write_text(draw, (_GAP, middle), f"{label} ?", _TEXT)
        for column, share in enumerate(map(float, alpha[row])):
            x, y = left + column * cell, top + row * _ROW
            colour = tuple(round(p + share * (g - p)) for p, g in zip(PAPER, GLOW, strict=True))
            draw.rectangle((x, y, x + cell - 3, y + _ROW - 3), fill=colour, outline=INK)
            if share >= 0.005:
                write_text(draw, (x + 6, middle - 1), f"{100 * share:.0f}", _TEXT)
        said = probability[row] > 0.5
        answer = f"{'yes' if said else 'no'} {100 * probability[row]:.1f} %"
        wrong = "" if said == present[row] else ", wrong"
        write_text(draw, (right + _GAP, middle), answer + wrong, _TEXT)
    return np.array(sheet)


def side_by_side(images: Sequence[np.ndarray], title: str) -> np.ndarray:
    """Draws images `[h, w]` in [0, 1], enlarged to one size, in a row; uint8 `[., ., 3]`."""
    return _sheet([_tile(image) for image in images], [""] * len(images), title)


def glimpse_figure(
    image: np.ndarray, locations: np.ndarray, patches: np.ndarray, title: str
) -> np.ndarray:
    """Draws the path of glimpses over an image, then one tile per glimpse; uint8 `[., ., 3]`.

    The path has a frame of the finest patch's size at each location, the first one blue. A tile
    nests the patches, each at its own size: fine in the middle, coarse around it.

    Args:
        image: Float `[H, W]`, 0 black to 1 white.
        locations: `[T, 2]`, (x, y) normalised to [-1, 1], y down.
        patches: `[T, size, size, scales]`, the finest first, each twice as wide as the last.
        title: Line above them.
    """
    tiles = [_path(image, locations, patches.shape[1]), *map(_retina, patches)]
    return _sheet(tiles, ["", *(f"{n}" for n in range(1, len(tiles)))], title)


def _tile(image: np.ndarray) -> Image.Image:
    grey = np.rint(255.0 * np.clip(image, 0.0, 1.0)).astype(np.uint8)
    return Image.fromarray(grey).convert("RGB").resize((_TILE, _TILE), Image.Resampling.NEAREST)


def _path(image: np.ndarray, locations: np.ndarray, size: int) -> Image.Image:
    tile = _tile(image)
    draw = ImageDraw.Draw(tile)
    sides = np.array(image.shape[::-1])
    scale = _TILE / sides
    # The centre of pixel 0 is half a pixel from the border.
    centres = ((locations + 1.0) / 2.0 * (sides - 1) + 0.5) * scale
    half = size / 2.0 * scale
    draw.line([tuple(centre) for centre in centres], fill=GLOW, width=2)
    for n in reversed(range(len(centres))):
        frame = (*(centres[n] - half), *(centres[n] + half))
        draw.rectangle(frame, outline=GLOW if n else _FIRST, width=2)
    return tile


def _retina(patches: np.ndarray) -> Image.Image:
    scales = patches.shape[-1]
    tile = _tile(patches[..., -1])
    for k in reversed(range(scales - 1)):
        side = _TILE // 2 ** (scales - 1 - k)
        corner = (_TILE - side) // 2
        tile.paste(_tile(patches[..., k]).resize((side, side)), (corner, corner))
        frame = (corner, corner, corner + side, corner + side)
        ImageDraw.Draw(tile).rectangle(frame, outline=GLOW)
    return tile


def _sheet(tiles: Sequence[Image.Image], captions: Sequence[str], title: str) -> np.ndarray:
    top, step = _GAP + 2 * _TEXT, _TILE + _GAP
    size = (len(tiles) * step + _GAP, top + _TILE + 2 * _TEXT)
    sheet = Image.new("RGB", size, PAPER)
    draw = ImageDraw.Draw(sheet)
    write_text(draw, (_GAP, _GAP), title, _TEXT)
    for n, (tile, caption) in enumerate(zip(tiles, captions, strict=True)):
        sheet.paste(tile, (_GAP + n * step, top))
        write_text(draw, (_GAP + n * step, top + _TILE + 4), caption, _TEXT)
    return np.array(sheet)
