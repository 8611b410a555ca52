"""From the name of a run, or of a published model, to a captioner: images in, captions out."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from sat_tf import digits, published
from sat_tf.captions import Caption
from sat_tf.config import CaptionerConfig, Inference, SearchConfig
from sat_tf.errors import RunError, invalid_value, other_version
from sat_tf.fields import check_argument, from_dict
from sat_tf.images import decoding
from sat_tf.images.pillow import read_upright
from sat_tf.models.captioner import Captioner
from sat_tf.run_folder import RunFolder, read_object
from sat_tf.search.beam_search import Hypotheses
from sat_tf.vocabulary import Vocabulary
from sat_tf.weights import load_compact, load_weights

if TYPE_CHECKING:
    from sat_tf.digits.reader import DigitReader

Image = str | Path | bytes | np.ndarray
"""Path of an image file, its bytes, or uint8 pixels `[H, W, 3]`."""


def load(run_dir: str | Path) -> TrainedCaptioner | DigitReader:
    """Loads the best captioner of a run, or a published model.

    Args:
        run_dir: Folder written by `python -m training.train` or `python -m training.publish`; or
            the name of a model that ships (`sat_tf.published.names()`, `sat_tf.digits.names()`);
            or `hf://OWNER/NAME[@REVISION]` on the Hugging Face Hub.

    Returns:
        A `TrainedCaptioner`, which needs neither the data set nor the encoder's weights file; of a
        digit model a `DigitReader`.

    Raises:
        RunError: The folder is not a run, or its files do not fit each other.
    """
    folder = published.locate(check_argument("run_dir", run_dir, str | Path))
    return load_captioner(folder) if digits.system_of(folder) is None else digits.load(folder)


def load_captioner(run_dir: str | Path) -> TrainedCaptioner:
    """Loads a captioner; see `load`. A digit model is an error."""
    folder = RunFolder(published.locate(run_dir))
    is_published = published.is_published(folder.path)
    files = published.checked_files(folder.path) if is_published else {}
    config, vocabulary = read_config(folder), read_vocabulary(folder)
    if not is_published and not folder.best_weights.is_file():
        raise RunError(
            f"{folder} has no {folder.best_weights.name}: the run has not finished an epoch yet."
        )
    model = Captioner(config, len(vocabulary), load_encoder_weights=False, dtype="float32")
    digest = None
    if is_published:
        load_compact(model, [files[name] for name in published.WEIGHTS.values()])
    else:
        digest = load_weights(model, folder.best_weights)
    return TrainedCaptioner(model, vocabulary, folder.path, digest)


def read_config(run_dir: Path | RunFolder) -> CaptionerConfig:
    """Reads the captioner's part of a run's configuration.

    Raises:
        RunError: The folder is not a captioner's run, or of another version.
    """
    path = RunFolder(run_dir).config
    values = read_object(path)
    digits.refuse(run_dir, values)
    names = [field.name for field in dataclasses.fields(CaptionerConfig)]
    try:
        captioner = {name: values[name] for name in names}
        # The place of what taught attention concerns training alone.
        captioner["attention"] = {k: v for k, v in captioner["attention"].items() if k != "teacher"}
        return from_dict(CaptionerConfig, captioner)
    except KeyError as error:
        raise RunError(f"{path} is not a run's configuration: it has no {error}.") from error
    except (TypeError, AttributeError, ValueError) as error:
        raise other_version(path, error) from error


def read_vocabulary(run_dir: Path | RunFolder) -> Vocabulary:
    """Reads a run's vocabulary.

    Raises:
        RunError: It is missing or damaged, or another run's.
    """
    folder = RunFolder(run_dir)
    path = folder.vocabulary
    try:
        vocabulary = Vocabulary.load(path)
    except (OSError, ValueError) as error:
        raise RunError(f"Cannot read {path}: {error}") from error
    # A file of an earlier version does not record it; a damaged one is reported where it is used.
    recorded = None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        recorded = json.loads(folder.data.read_text("utf-8"))["vocabulary"]["fingerprint"]
    if recorded not in (None, vocabulary.fingerprint()):
        raise RunError(
            f"{path} is another run's: its words are not those that the run in {folder} was "
            "trained with. Copy its own vocabulary.json back."
        )
    return vocabulary


def read_average(run_dir: Path | RunFolder) -> dict[str, float]:
    """Reads which runs were averaged, with their shares; empty for a run that was trained."""
    path = RunFolder(run_dir).average
    return read_object(path) if path.exists() else {}


class TrainedCaptioner:
    """A captioner with its vocabulary.

    Args:
        model: The captioner.
        vocabulary: Its words.
        path: Folder of the run it was loaded from, if any.
        weights_sha256: SHA-256 (hexadecimal) of the file of its weights, if it was loaded from one.
    """

    def __init__(
        self,
        model: Captioner,
        vocabulary: Vocabulary,
        path: Path | None = None,
        weights_sha256: str | None = None,
    ) -> None:
        if len(vocabulary) != model.vocabulary_size:
            expected = f"the model's {model.vocabulary_size} words"
            raise invalid_value("vocabulary", expected, f"{len(vocabulary)}")
        self.model, self.vocabulary = model, vocabulary
        self.path, self.weights_sha256 = path, weights_sha256
        self._searches: dict[SearchConfig, tf.types.experimental.PolymorphicFunction] = {}
        self._encode = tf.function(
            lambda pixels: model.encoder(pixels, training=False),
            autograph=False,
            reduce_retracing=True,
        )

    @property
    def config(self) -> CaptionerConfig:
        """Configuration of the model."""
        return self.model.config

    @property
    def grid(self) -> tuple[int, int]:
        """`(h, w)` of the attention maps."""
        return self.model.encoder.grid

    def set_inference(self, inference: Inference) -> None:
        """Lets hard attention select a location by `expectation`, `sample` or `argmax`.

        Raises:
            ValueError: Any other word, or a captioner without hard attention.
        """
        kind = self.config.attention.kind
        if kind != "hard":
            expected = f"none for {kind} attention"
            raise invalid_value("inference", expected, inference, flag="--inference")
        attention = dataclasses.replace(self.config.attention, inference=inference)
        self.model.config = dataclasses.replace(self.config, attention=attention)
        self._searches.clear()

    def caption(self, image: Image, search: SearchConfig | None = None) -> Caption:
        """Captions one image.

        Args:
            image: Path of a file, its bytes, or uint8 pixels `[H, W, 3]`. A photograph is turned
                upright by its EXIF first.
            search: All settings of the search; by default the run's, of which
                `dataclasses.replace(captioner.config.search, beam=1)` changes one.

        Returns:
            A `Caption`.

        Raises:
            ValueError: The image cannot be read.
        """
        return self.captions([image], search)[0]

    def captions(
        self, images: Sequence[Image], search: SearchConfig | None = None
    ) -> list[Caption]:
        """Captions several images in one batch; see `caption`."""
        if isinstance(images, (str, bytes, Path)):
            raise invalid_value("images", "a list of images; one is for `caption`", repr(images))
        check_argument("images", images, Collection)
        if len(images) == 0:
            return []
        pixels = tf.stack([self.pixels(image) for image in images])
        return self.describe(self.annotate(pixels), search)

    def pixels(self, image: Image) -> tf.Tensor:
        """Returns the encoder's input, float32 `[S, S, 3]`, 0..255; see `read_pixels`."""
        encoder = self.config.encoder
        return read_pixels(image, encoder.image_size, encoder.resize)

    def annotate(self, pixels: tf.Tensor) -> tf.Tensor:
        """Encodes images `[B, S, S, 3]`, 0..255, as annotations `[B, L, D]`.

        Raises:
            ValueError: The images are of another shape.
        """
        pixels = tf.cast(pixels, tf.float32)
        self.model.encoder.check_shape(pixels.shape)
        return self._encode(pixels)

    def describe(
        self, annotations: tf.Tensor | np.ndarray, search: SearchConfig | None = None
    ) -> list[Caption]:
        """Captions images by their annotations `[B, L, D]`."""
        return self.read(self.search(annotations, search))

    def search(
        self, annotations: tf.Tensor | np.ndarray, search: SearchConfig | None = None
    ) -> Hypotheses:
        """Runs beam search over annotations `[B, L, D]`, compiled once per setting."""
        search = check_argument("search", search, SearchConfig | None) or self.config.search
        annotations = tf.cast(annotations, tf.float32)
        shape = (math.prod(self.grid), self.model.encoder.annotation_dim)
        if not annotations.shape.is_compatible_with((None, *shape)):
            expected = f"shape [B, {shape[0]}, {shape[1]}]"
            raise invalid_value("annotations", expected, annotations.shape.as_list())
        if search not in self._searches:
            self._searches[search] = tf.function(
                lambda a: self.model.search(a, search), autograph=False, reduce_retracing=True
            )
        return self._searches[search](annotations)

    def read(self, hypotheses: Hypotheses) -> list[Caption]:
        """Converts hypotheses to captions, one per image."""
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
            log_prob=float(hypotheses.log_probs[row, 0]),
            log_probs=hypotheses.word_log_probs[row, 0, :length],
            alpha=alpha,
            beta=beta,
            alternatives=tuple(pair for pair in zip(texts, scores, strict=True) if pair[0]),
        )


def read_pixels(image: Image, size: int, resize: str) -> tf.Tensor:
    """Reads an image as the encoder sees it, a photograph turned upright by its EXIF.

    Args:
        image: Path, bytes, or uint8 pixels `[H, W, 3]`.
        size: Side, pixels.
        resize: `crop` or `squash`.

    Returns:
        float32 `[size, size, 3]`, 0..255.

    Raises:
        ValueError: The image is missing or cannot be read; or pixels are of another type or shape.
    """
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[-1] != 3 or not image.size:
            got = f"{image.dtype} {list(image.shape)}"
            raise invalid_value("image", "uint8 pixels [H, W, 3]", got)
        return decoding.resize(image, size, resize)
    check_argument("image", image, Image)
    name = "the image" if isinstance(image, bytes) else f"the image {str(image)!r}"
    try:
        return decoding.load(read_upright(image), size, resize)
    except OSError as error:
        raise ValueError(f"Cannot read {name}: {error.strerror or error}.") from error
    except (tf.errors.OpError, ValueError) as error:
        raise ValueError(f"Cannot read {name}: {decoding.read_error(error)}.") from error
