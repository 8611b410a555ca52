"""MNIST (LeCun et al., 1998), and batches made from it: strips, canvases and pairs of digits.

A batch depends only on its position, (seed, epoch, step) or (split, number), so a resumed run sees
the same batches as an uninterrupted one.
"""

from __future__ import annotations

import dataclasses
import functools
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from digits.config import CanvasData, DigitData, JitteredData, PairData, StripsData
from digits.models.glimpses import bilinear_sample
from sat_tf.util.errors import invalid_value
from training.data.batches import prefetched
from training.data.examples import SPLITS, DataError

FILE = "mnist.npz"
SIDE = 28
"""Side of a digit's image, pixels."""
_INK = 20  # side of the square that a digit of MNIST fits into, pixels
_SCORED_AT_ONCE = 100  # examples per scored batch; what is drawn for them depends on it
_TRAINING = len(SPLITS)  # seeds training differently from the splits that are scored


@dataclass(frozen=True, eq=False)
class Digits:
    """The digits of a split.

    Attributes:
        images: uint8 `[n, 28, 28]`, white on black.
        labels: int64 `[n]`, 0 ... 9.
    """

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, part: slice) -> Digits:
        return Digits(self.images[part], self.labels[part])


def load_digits(split: str, config: DigitData, data_dir: Path | None = None) -> Digits:
    """Loads the digits of a split.

    Args:
        split: One of `SPLITS`.
        config: Number of dev digits, the last ones of training, and of digits to keep.
        data_dir: Folder of `mnist.npz` with `x_train`, `y_train`, `x_test` and `y_test`; None uses
            the file that `keras.datasets.mnist` downloads the first time.

    Raises:
        DataError: The file does not exist or does not hold digits.
        ValueError: The dev split leaves no digits to train on.
    """
    part = "test" if split == "test" else "train"
    digits = _downloaded(part) if data_dir is None else _from_file(data_dir / FILE, part)
    if part == "train":
        if config.dev_digits >= len(digits):
            expected = f"fewer than the {len(digits)} training digits"
            raise invalid_value("--data.dev_digits", expected, config.dev_digits, "key")
        cut = len(digits) - config.dev_digits
        digits = digits[:cut] if split == "train" else digits[cut:]
    return digits[: config.limit]


def _downloaded(part: str) -> Digits:
    from keras.datasets import mnist

    try:
        found = mnist.load_data()
    except Exception as error:  # the downloader raises a plain one
        raise DataError(
            f"MNIST cannot be downloaded: {error}. Give a folder with {FILE} as `--data-dir`."
        ) from error
    return Digits(*found[part == "test"])


def _from_file(path: Path, part: str) -> Digits:
    if not path.is_file():
        raise DataError(f"{path.parent} has no {FILE}; without `--data-dir` it is downloaded.")
    try:
        with np.load(path) as file:
            images, labels = file[f"x_{part}"], file[f"y_{part}"]
    # NumPy raises any of these for a file that is cut short or is something else.
    except (OSError, ValueError, EOFError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read as Keras' {FILE}: {error}.") from error
    shapes = f"images {images.dtype} {[*images.shape]}, labels {labels.dtype} {[*labels.shape]}"
    are_digits = images.dtype == np.uint8 and images.shape == (len(labels), SIDE, SIDE)
    if not (are_digits and np.isin(labels, range(10)).all()):
        expected = f"images uint8 [n, {SIDE}, {SIDE}] and n labels of 0 to 9"
        raise DataError(f"Expected {expected} in {path}, got {shapes}.")
    return Digits(images, labels.astype(np.int64))


# --- examples: `(digits, rows [B, k], rng, data set) -> arrays [B, ...]` by name ---

Arrays = dict[str, np.ndarray]


def draw_strips(
    digits: Digits, rows: np.ndarray, rng: np.random.Generator, config: StripsData
) -> Arrays:
    """Draws strips: `images` uint8 `[B, 28, 28 P]` and `labels` int64 `[B, P]`, left to right."""
    portions = jittered(digits, rows, rng, config)
    strips = np.concatenate([portions[:, place] for place in range(rows.shape[1])], axis=-1)
    return {"images": strips, "labels": digits.labels[rows]}


def draw_canvases(
    digits: Digits, rows: np.ndarray, rng: np.random.Generator, config: CanvasData
) -> Arrays:
    """Draws one digit on each canvas.

    A digit that is not turned stays on the canvas; one larger than the canvas is in its middle
    with its edges cut off. Scraps of random digits are laid over it, in random places.

    Returns:
        `images` uint8 `[B, size, size]` and `labels` int `[B]`.
    """
    rows, size = rows[:, 0], config.size
    count, images = len(rows), jittered(digits, rows, rng, config)
    if config.rotation or config.scale_from != 1.0 or config.scale_to != 1.0:
        angle = np.deg2rad(rng.uniform(-config.rotation, config.rotation, count))
        scale = rng.uniform(config.scale_from, config.scale_to, count)
        reach = np.maximum((size - SIDE * scale) / 2, 0.0)[:, np.newaxis]
        centres = (size - 1) / 2 + reach * rng.uniform(-1.0, 1.0, [count, 2])
        canvases = warped(images, angle, scale, centres, size)
    else:
        corners = rng.integers(0, size - SIDE + 1, [count, 2])
        canvases = np.zeros([count, size, size], np.uint8)
        _paste(canvases, images, corners)
    side = config.clutter_size
    for _ in range(config.clutter):
        source = rng.integers(len(digits), size=count)
        cut = rng.integers(0, SIDE - side + 1, [count, 2])
        scraps = digits.images[source[:, np.newaxis, np.newaxis], *_window(cut, side)]
        _paste(canvases, scraps, rng.integers(0, size - side + 1, [count, 2]))
    return {"images": canvases, "labels": digits.labels[rows]}


def draw_pairs(
    digits: Digits, rows: np.ndarray, rng: np.random.Generator, config: PairData
) -> Arrays:
    """Draws two digits on each canvas, 20 pixels apart along an axis.

    The squares of 20 pixels in their middles do not overlap. MNIST digits fit into such a square
    but are centred by mass, so three in four reach out of it: on 60 x 60 pixels the strokes of 3
    pairs in 100 touch, and half of these overlap.

    Returns:
        As `draw_canvases`; labels are numbers of unordered pairs, 0..54.
    """
    size, places = config.size, config.size - SIDE + 1
    corners = rng.integers(0, places, [len(rows), 2, 2])
    while True:
        distance = np.abs(corners[:, 0] - corners[:, 1]).max(axis=-1)
        close = np.flatnonzero(distance < _INK)
        if not len(close):
            break
        corners[close] = rng.integers(0, places, [len(close), 2, 2])
    canvases = np.zeros([len(rows), size, size], np.uint8)
    for k in range(2):
        _paste(canvases, digits.images[rows[:, k]], corners[:, k])
    return {"images": canvases, "labels": pair_number(*digits.labels[rows].T)}


def pair_number(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Numbers an unordered pair of digits: 00 is 0, 01 is 1, 11 is 10, 99 is 54."""
    low, high = np.minimum(first, second), np.maximum(first, second)
    return low * (19 - low) // 2 + high


def jittered(
    digits: Digits, rows: np.ndarray, rng: np.random.Generator, config: JitteredData
) -> np.ndarray:
    """Shifts digits, then turns them about their image's middle: uint8 `[..., 28, 28]`."""
    images, shift = digits.images[rows], config.shift
    if shift:
        edges = [(0, 0)] * rows.ndim + [(shift, shift)] * 2
        by = rng.integers(-shift, shift + 1, [*rows.shape, 2])[..., np.newaxis]
        x, y = np.moveaxis(shift - by + np.arange(SIDE), -2, 0)
        images = np.take_along_axis(np.pad(images, edges), y[..., np.newaxis], axis=-2)
        images = np.take_along_axis(images, x[..., np.newaxis, :], axis=-1)
    if not config.turn:
        return images
    angle = np.deg2rad(rng.uniform(-config.turn, config.turn, rows.size))
    return warped(images.reshape([-1, SIDE, SIDE]), angle).reshape(images.shape)


def warped(
    images: np.ndarray,
    angle: np.ndarray,
    scale: np.ndarray | float = 1.0,
    centres: np.ndarray | float = (SIDE - 1) / 2,
    size: int = SIDE,
) -> np.ndarray:
    """Draws digits `[B, 28, 28]` on canvases, uint8 `[B, size, size]`; parts beyond are cut off.

    Args:
        images: uint8 `[B, 28, 28]`.
        angle: `[B]`, radians; positive turns x towards y, which points down.
        scale: `[B]` or a number for all, factor of the size.
        centres: `[B, 2]` or a number for all, position of the digit's middle, (x, y) in pixels.
        size: Side of the canvas, pixels.
    """
    # The source of each pixel of the canvas is turned back and divided by the scale.
    cosine, sine = np.cos(angle) / scale, np.sin(angle) / scale
    back = np.stack([cosine, -sine, sine, cosine], axis=-1).reshape([-1, 2, 2])
    y, x = np.mgrid[:size, :size].reshape([2, -1])
    centres = np.broadcast_to(centres, [len(images), 2])
    # With row vectors it is one matrix product per image, not one per pixel.
    offset = np.stack([x, y], axis=-1) - centres[:, np.newaxis]
    points = offset @ back + (SIDE - 1) / 2
    values = _sample(
        tf.constant(images[..., np.newaxis], tf.float32), tf.constant(points, tf.float32)
    ).numpy()
    return np.rint(values).astype(np.uint8).reshape([-1, size, size])


# Compiled: run one by one, its forty operations take ten times as long.
_sample = tf.function(bilinear_sample, autograph=False, jit_compile=True)


def _window(corners: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows `[B, side, 1]` and columns `[B, 1, side]` of squares at (x, y) `[B, 2]`."""
    x, y = np.moveaxis(corners[..., np.newaxis] + np.arange(side), 1, 0)
    return y[:, :, np.newaxis], x[:, np.newaxis]


def _paste(canvases: np.ndarray, patches: np.ndarray, corners: np.ndarray) -> None:
    """Lays square patches `[B, s, s]` on canvases, keeping the brighter pixels."""
    first = np.arange(len(canvases))[:, np.newaxis, np.newaxis]
    place = first, *_window(corners, patches.shape[-1])
    canvases[place] = np.maximum(canvases[place], patches)


_DRAW: dict[type[DigitData], Callable[..., Arrays]] = {
    StripsData: draw_strips,
    CanvasData: draw_canvases,
    PairData: draw_pairs,
}


# --- batches ---


def plan(digits: int, columns: int, rng: np.random.Generator) -> np.ndarray:
    """Chooses the digits of each example, int `[digits, columns]`: an order for each column."""
    return np.stack([rng.permutation(digits) for _ in range(columns)], axis=1)


def epoch_steps(digits: Digits, batch_size: int) -> int:
    """Returns the number of batches per epoch; the remainder is not used.

    Raises:
        ValueError: There are too few digits for one batch.
    """
    if len(digits) < batch_size:
        expected = f"at most the {len(digits)} training digits"
        raise invalid_value("--fit.batch_size", expected, batch_size, "key")
    return len(digits) // batch_size


def training_batches(
    digits: Digits, config: DigitData, batch_size: int, seed: int, epoch: int, step: int = 0
) -> tf.data.Dataset:
    """Returns endless shuffled batches, see `as_model_input`, from a step of an epoch on."""
    steps = epoch_steps(digits, batch_size)
    draw, columns = _DRAW[type(config)], config.digits_per_example

    @functools.lru_cache(maxsize=2)
    def plan_of(epoch: int) -> np.ndarray:
        rng = np.random.default_rng([seed, _TRAINING, epoch])
        return plan(len(digits), columns, rng)

    def batch(index: np.ndarray) -> tuple[np.ndarray, ...]:
        epoch, step = divmod(int(index), steps)
        rng = np.random.default_rng([seed, _TRAINING, epoch, step])
        rows = plan_of(epoch)[step * batch_size : (step + 1) * batch_size]
        return tuple(draw(digits, rows, rng, config).values())

    # One example tells names, types and shapes.
    sample = draw(digits, np.zeros([1, columns], np.int64), np.random.default_rng(0), config)

    def read(index: tf.Tensor) -> dict[str, tf.Tensor]:
        parts = tf.numpy_function(batch, [index], [part.dtype for part in sample.values()])
        shapes = [[batch_size, *part.shape[1:]] for part in sample.values()]
        shaped = map(tf.ensure_shape, parts, shapes)
        return as_model_input(dict(zip(sample, shaped, strict=True)))

    return prefetched(read, epoch * steps + step)


def scoring_batches(
    digits: Digits, config: DigitData, split: str
) -> Iterator[dict[str, tf.Tensor]]:
    """Yields the examples of a split, the same in every run and without augmentation.

    There are as many as digits; each digit is once in each place of an example.
    """
    if isinstance(config, JitteredData):
        config = dataclasses.replace(config, shift=0, turn=0.0)
    draw, code = _DRAW[type(config)], SPLITS.index(split)
    rows = plan(len(digits), config.digits_per_example, np.random.default_rng([0, code]))
    for number, start in enumerate(range(0, len(rows), _SCORED_AT_ONCE)):
        rng = np.random.default_rng([0, code, number])
        batch = draw(digits, rows[start : start + _SCORED_AT_ONCE], rng, config)
        yield as_model_input({name: tf.constant(part) for name, part in batch.items()})


def as_model_input(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Casts images to float32 `[B, H, W, 1]` in [0, 1] and integers to int32."""
    done = {
        name: tf.cast(part, tf.int32 if part.dtype.is_integer else tf.float32)
        for name, part in batch.items()
    }
    done["images"] = tf.cast(batch["images"], tf.float32)[..., tf.newaxis] / 255.0
    return done
