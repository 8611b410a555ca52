"""A finished run read from its folder: configuration, vocabulary and weights make a captioner.

The one place that knows the names of these files.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from sat_tf import images
from sat_tf.config import (
    CONFIG_FILE,
    SYSTEM_KEY,
    CaptionerConfig,
    Inference,
    SearchConfig,
    from_dict,
)
from sat_tf.decoding import Hypotheses
from sat_tf.files import write_atomically
from sat_tf.models.captioner import Captioner
from sat_tf.models.digit_model import DigitModel
from sat_tf.vocabulary import Vocabulary

VOCABULARY_FILE = "vocabulary.json"
WEIGHTS_FILE = "best.weights.h5"
AVERAGE_FILE = "average.json"
"""Of a folder whose weights are a mean: run -> its share."""

Image = str | Path | bytes | np.ndarray


class RunError(ValueError):
    """A folder is not a finished run, or holds one that does not fit."""


@dataclass(frozen=True, eq=False)
class Caption:
    """One captioned picture.

    Attributes:
        text: The caption.
        words: Its words, `T` of them (characters where the vocabulary has characters).
        score: log p divided by length^p, nats.
        alpha: `[T, h, w]`, where each word looked, or None without attention.
        beta: `[T]`, the gate of each word, or None without attention.
        alternatives: The other hypotheses of the beam, best first: (text, score).
    """

    text: str
    words: tuple[str, ...]
    score: float
    alpha: np.ndarray | None
    beta: np.ndarray | None
    alternatives: tuple[tuple[str, float], ...] = ()


class TrainedCaptioner:
    """A captioner and its vocabulary: pictures in, captions with attention out.

    Args:
        model: The captioner.
        vocabulary: Its words.
        path: The run it came from, if any.
    """

    def __init__(self, model: Captioner, vocabulary: Vocabulary, path: Path | None = None) -> None:
        self.model, self.vocabulary, self.path = model, vocabulary, path
        self._searches: dict[SearchConfig, tf.types.experimental.PolymorphicFunction] = {}
        self._encode = tf.function(
            lambda pixels: model.encoder(pixels, training=False), autograph=False
        )

    @property
    def config(self) -> CaptionerConfig:
        """What the captioner is."""
        return self.model.config

    @property
    def grid(self) -> tuple[int, int]:
        """`(h, w)` of the attention maps."""
        return self.model.encoder.grid

    def choose(self, inference: Inference) -> None:
        """Let hard attention choose a location by `expectation`, `sample` or `argmax`.

        Raises:
            ValueError: Another word.
        """
        attention = dataclasses.replace(self.config.attention, inference=inference)
        values = dataclasses.asdict(dataclasses.replace(self.config, attention=attention))
        self.model.config = from_dict(CaptionerConfig, values)
        self._searches.clear()

    def caption(self, image: Image, search: SearchConfig | None = None) -> Caption:
        """Caption one picture.

        Args:
            image: Path of a file, its bytes, or uint8 pixels `[H, W, 3]`. A photograph is turned
                upright by its EXIF first.
            search: Beam and length normalisation; None takes the run's.

        Returns:
            A `Caption`.

        Raises:
            ValueError: The image cannot be read.
        """
        return self.captions([image], search)[0]

    def captions(
        self, pictures: Sequence[Image], search: SearchConfig | None = None
    ) -> list[Caption]:
        """Caption several pictures at once; see `caption`."""
        if len(pictures) == 0:
            return []
        pixels = tf.stack([self.pixels(picture) for picture in pictures])
        return self.describe(self.annotate(pixels), search)

    def pixels(self, image: Image, upright: bool = True) -> tf.Tensor:
        """What the encoder sees of a picture: float32 `[S, S, 3]`, 0..255; see `read_pixels`."""
        encoder = self.config.encoder
        return read_pixels(image, encoder.image_size, encoder.resize, upright)

    def annotate(self, pixels: tf.Tensor) -> tf.Tensor:
        """Annotations `[B, L, D]` of pictures `[B, S, S, 3]`, 0..255."""
        return self._encode(tf.cast(pixels, tf.float32))

    def describe(
        self, annotations: tf.Tensor | np.ndarray, search: SearchConfig | None = None
    ) -> list[Caption]:
        """Caption pictures by their annotations `[B, L, D]`."""
        return self.read(self.search(annotations, search))

    def search(
        self, annotations: tf.Tensor | np.ndarray, search: SearchConfig | None = None
    ) -> Hypotheses:
        """Beam search over annotations `[B, L, D]`, compiled once for each setting."""
        search = search or self.config.search
        if search not in self._searches:
            self._searches[search] = tf.function(
                lambda a: self.model.search(a, search), autograph=False, reduce_retracing=True
            )
        return self._searches[search](tf.cast(annotations, tf.float32))

    def read(self, hypotheses: Hypotheses) -> list[Caption]:
        """Hypotheses as captions, one a picture."""
        hypotheses = tf.nest.map_structure(lambda tensor: np.asarray(tensor), hypotheses)
        return [self._read_one(hypotheses, row) for row in range(len(hypotheses.scores))]

    def _read_one(self, hypotheses: Hypotheses, row: int) -> Caption:
        length = int(hypotheses.lengths[row, 0])
        ids = hypotheses.token_ids[row, 0, :length]
        alpha = beta = None
        if self.config.attention.kind != "none":
            alpha, beta = (part[row, 0, :length] for part in hypotheses.auxiliary)
            alpha = alpha.reshape(length, *self.grid)
        others = range(1, hypotheses.scores.shape[1])
        texts = [self.vocabulary.decode(hypotheses.token_ids[row, k]) for k in others]
        scores = [float(hypotheses.scores[row, k]) for k in others]
        return Caption(
            text=self.vocabulary.decode(ids),
            words=tuple(self.vocabulary.words[i] for i in ids),
            score=float(hypotheses.scores[row, 0]),
            alpha=alpha,
            beta=beta,
            alternatives=tuple(pair for pair in zip(texts, scores, strict=True) if pair[0]),
        )


def read_pixels(image: Image, size: int, resize: str, upright: bool = True) -> tf.Tensor:
    """A picture as the encoder sees it: float32 `[size, size, 3]`, 0..255.

    Args:
        image: Path, bytes, or uint8 pixels `[H, W, 3]`.
        size: Side, pixels.
        resize: `crop` or `squash`.
        upright: Turn a photograph as its EXIF asks; the exported graph, which cannot, is
            compared with False.

    Raises:
        ValueError: The image is missing or cannot be read, and the message names it; or pixels
            are of another type or shape.
    """
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[-1] != 3 or not image.size:
            raise ValueError(
                "Received an invalid value for argument `image`: expected uint8 pixels [H, W, 3], "
                f"got {image.dtype} {list(image.shape)}."
            )
        return images.resize(image, size, resize)
    name = "the image" if isinstance(image, bytes) else f"the image {str(image)!r}"
    try:
        content = image if isinstance(image, bytes) else Path(image).read_bytes()
        return images.load(images.upright(content) if upright else content, size, resize)
    except OSError as error:
        raise ValueError(f"Cannot read {name}: {error.strerror or error}.") from error
    except tf.errors.OpError as error:
        raise ValueError(f"Cannot read {name}: {images.read_error(error)}.") from error


def load(run_dir: str | Path) -> TrainedCaptioner:
    """The best captioner of a run.

    Args:
        run_dir: Folder written by `python -m training.train`.

    Returns:
        A `TrainedCaptioner`; needs neither the data set nor the encoder's weights file.

    Raises:
        RunError: The folder is not a run, or its files do not fit each other.
    """
    path = Path(run_dir)
    config, vocabulary = read_config(path), read_vocabulary(path)
    weights = path / WEIGHTS_FILE
    if not weights.is_file():
        raise RunError(f"{path} has no {WEIGHTS_FILE}: the run has not finished an epoch yet.")
    model = Captioner(config, len(vocabulary), load_encoder_weights=False)
    load_weights(model, weights)
    return TrainedCaptioner(model, vocabulary, path)


def read_config(path: Path) -> CaptionerConfig:
    """The captioner's part of a run's configuration."""
    values = _read_json(path / CONFIG_FILE)
    if SYSTEM_KEY in values:
        raise RunError(
            f"{path} is a run of the digit system {values[SYSTEM_KEY]!r}, which writes no "
            f"captions; `python -m training.evaluate --run-dir {path}` evaluates it."
        )
    names = [field.name for field in fields(CaptionerConfig)]
    try:
        return from_dict(CaptionerConfig, {name: values[name] for name in names})
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path / CONFIG_FILE} is not a run's configuration: {error}") from error


def read_vocabulary(path: Path) -> Vocabulary:
    """A run's vocabulary."""
    try:
        return Vocabulary.load(path / VOCABULARY_FILE)
    except (OSError, ValueError) as error:
        raise RunError(f"Cannot read {path / VOCABULARY_FILE}: {error}") from error


def read_average(path: Path) -> dict[str, float]:
    """The runs whose weights were averaged, with their shares; none for a run that was trained."""
    return _read_json(path / AVERAGE_FILE) if (path / AVERAGE_FILE).exists() else {}


def _read_json(path: Path) -> dict:
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise RunError(f"{path.parent} is not a run: it has no {path.name}.") from error
    except (OSError, ValueError) as error:
        raise RunError(f"Cannot read {path}: {error}") from error


class _Weights(keras.Model):
    """The layers whose weights make a model, without optimiser and running means."""

    def __init__(self, layers: Mapping[str, keras.layers.Layer]) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.built = True


def save_weights(model: Captioner | DigitModel, path: Path) -> None:
    """Write the weights of the layers that make a model; whole or not at all.

    Raises:
        RunError: They cannot be written; what was there is still there.
    """
    file = _MemoryFile()
    _Weights(model.saved_layers()).save_weights(file)
    try:
        write_atomically(path, file.getvalue())
    except OSError as error:
        raise RunError(
            f"The weights cannot be written to {path}: {error.strerror}. What was there is still "
            "there: make room and start the same command again."
        ) from error


class _MemoryFile(io.BytesIO):
    """Takes the weights before the disk does: HDF5 ends the process when a disk is full."""

    def __str__(self) -> str:
        return WEIGHTS_FILE  # Keras goes by the end of the name


def load_weights(model: Captioner | DigitModel, path: Path) -> None:
    """Read back what `save_weights` wrote.

    Raises:
        RunError: The file does not fit the model.
    """
    try:
        _Weights(model.saved_layers()).load_weights(path)
    except (OSError, ValueError, KeyError) as error:
        raise RunError(
            f"The weights in {path} do not fit the run's configuration: {error}"
        ) from error


def batches(count: int, size: int) -> Iterable[np.ndarray]:
    """Indices 0 ... count - 1 in order, at most `size` at a time."""
    for start in range(0, count, size):
        yield np.arange(start, min(start + size, count))
