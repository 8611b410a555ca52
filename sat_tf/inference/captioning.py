"""A captioner with its words: images in, captions out, by the model or by its graphs."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, overload, runtime_checkable

import numpy as np

from sat_tf.config import CaptionerConfig, Inference, SearchConfig
from sat_tf.images.pillow import ImageInput, read_pixels
from sat_tf.inference.captions import Caption
from sat_tf.inference.confidence import Limits, read_limits
from sat_tf.text.vocabulary import END, SPECIAL_TOKENS, Vocabulary
from sat_tf.util.errors import RunError, invalid_value
from sat_tf.util.fields import check_argument

if TYPE_CHECKING:
    import tensorflow as tf

    from sat_tf.captioner import Captioner
    from sat_tf.inference.explain import Explanation
    from sat_tf.inference.litert_captioner import LiteRTCaptioner
    from sat_tf.search import Hypotheses

_BATCH = 64  # images of a list that the model captions at once


@runtime_checkable
class Files(Protocol):
    """Files of a captioner, whose model is loaded when it is needed."""

    config: CaptionerConfig

    def load_model(self) -> tuple[Captioner, str | None]:
        """Returns the model and the SHA-256 of the file of its weights, if it is one."""


class TrainedCaptioner:
    """A captioner with its vocabulary.

    Captions come from the model, or from graphs that equal it as long as nobody asked for the
    model: `model`, `annotate`, `describe` and `search` load it, and TensorFlow, first.

    Args:
        model: The captioner, or the files to load it from.
        vocabulary: Its words.
        path: Folder of the run it was loaded from, if any.
        weights_sha256: SHA-256 (hexadecimal) of the file of its weights, if it was loaded from one.
        graphs: LiteRT graphs of the same captioner.

    Attributes:
        limits: Familiarity of images and confidence in captions, as far as it knows them.
    """

    def __init__(
        self,
        model: Captioner | Files,
        vocabulary: Vocabulary,
        path: Path | None = None,
        weights_sha256: str | None = None,
        graphs: LiteRTCaptioner | None = None,
    ) -> None:
        self._source = model if isinstance(model, Files) else None
        self._model = None if self._source else model
        if self._model and len(vocabulary) != model.vocabulary_size:
            expected = f"the model's {model.vocabulary_size} words"
            raise invalid_value("vocabulary", expected, f"{len(vocabulary)}")
        self.vocabulary = vocabulary
        self.path, self.weights_sha256 = path, weights_sha256
        self._config, self._graphs = model.config, graphs
        if graphs is not None and path == graphs.folder:  # an export, which has its own
            self.limits = graphs.limits
        else:
            self.limits = Limits() if path is None else read_limits(path, weights_sha256)
        if graphs is not None:
            graphs.limits = self.limits
        self.after_first_caption: Callable[[], object] | None = None
        self._searches: dict[SearchConfig, tf.types.experimental.PolymorphicFunction] = {}

    def __repr__(self) -> str:
        attention, encoder = self.config.attention.kind, self.config.encoder
        words, unit = len(self.vocabulary) - len(SPECIAL_TOKENS), self.vocabulary.unit
        where = "" if self.path is None else f"{str(self.path)!r}, "
        return (
            f"{type(self).__name__}({where}{attention.replace('none', 'no')} attention over "
            f"{encoder.name} at {encoder.image_size} pixels, {words} {unit})"
        )

    @property
    def model(self) -> Captioner:
        """The Keras model; loads TensorFlow if it is the first to need it.

        Raises:
            RunError: Training has replaced the weights since the captioner was loaded.
        """
        if self._model is None:
            model, digest = self._source.load_model()
            if digest != self.weights_sha256:
                raise RunError(f"{self.path} has other weights by now: load it again.")
            model.config = self._config
            self._model = model
        return self._model

    @functools.cached_property
    def _encode(self) -> tf.types.experimental.PolymorphicFunction:
        import tensorflow as tf

        # TensorFlow would take one lambda of several captioners for one that is traced anew.
        encode = functools.partial(self.model.encoder, training=False)
        return tf.function(encode, autograph=False, reduce_retracing=True)

    @property
    def config(self) -> CaptionerConfig:
        """Configuration of the model."""
        return self._config if self._model is None else self._model.config

    @property
    def grid(self) -> tuple[int, int]:
        """`(h, w)` of the attention maps."""
        return self.model.encoder.grid if self._graphs is None else self._graphs.grid

    def set_inference(self, inference: Inference) -> None:
        """Sets how hard attention selects a location: `expectation`, `sample` or `argmax`.

        Raises:
            ValueError: Any other word, or a captioner without hard attention.
        """
        kind = self.config.attention.kind
        if kind != "hard":
            expected = f"none for {kind} attention"
            raise invalid_value("inference", expected, inference, flag="--inference")
        attention = dataclasses.replace(self.config.attention, inference=inference)
        self._config = dataclasses.replace(self.config, attention=attention)
        if self._model is not None:
            self._model.config = self._config
        self._searches.clear()
        self.limits = self.limits._replace(confidence=None)  # it is of captions by the other choice

    @overload
    def caption(self, image: ImageInput, search: SearchConfig | None = None) -> Caption: ...

    @overload
    def caption(
        self, image: Sequence[ImageInput], search: SearchConfig | None = None
    ) -> list[Caption | None]: ...

    def caption(
        self, image: ImageInput | Sequence[ImageInput], search: SearchConfig | None = None
    ) -> Caption | list[Caption | None]:
        """Captions an image, or each of a list.

        Args:
            image: Path of a file, its bytes, an image of Pillow, or uint8 pixels `[H, W, 3]`; or a
                list of them. A photograph is turned upright by its EXIF first.
            search: All settings of the search; by default the run's, of which
                `dataclasses.replace(captioner.config.search, beam=1)` changes one.

        Returns:
            A `Caption`; of a list a list, with None in the place of each image that cannot be read,
            which warnings name and count.

        Raises:
            ValueError: The one image cannot be read.
        """
        check_argument("search", search, SearchConfig | None)
        if not isinstance(image, list | tuple):
            return self._first(self.pixels(image), search)
        return [caption for _, caption in self._each(image, search)]

    def captions_of(
        self, images: str | Path | Iterable[ImageInput], search: SearchConfig | None = None
    ) -> Iterator[tuple[ImageInput, Caption]]:
        """Captions many images one after another, without holding them all; see `caption`.

        Args:
            images: A folder, for all image files in it at any depth; or anything that yields
                images, `Path("photos").glob("*.jpg")` for example.
            search: See `caption`.

        Yields:
            Each image, of a folder its path, with its caption. Images that cannot be read are
            skipped, and named and counted by warnings.

        Raises:
            ValueError: The folder has no images.
        """
        if isinstance(images, str | Path):
            from sat_tf.inference.batch import image_files

            images = image_files([Path(images)])
        check_argument("images", images, Iterable)
        return (one for one in self._each(images, search) if one[1] is not None)

    def beam(self, image: ImageInput, search: SearchConfig | None = None) -> list[Caption]:
        """Captions an image; returns all hypotheses with their maps, best first; see `caption`."""
        check_argument("search", search, SearchConfig | None)
        pixels = self.pixels(image)
        if self._light():
            return self._graphs.beam(pixels, search or self.config.search)
        return self._by_model([pixels], search)[0]

    def explain(self, image: ImageInput, sentence: str | None = None) -> Explanation:
        """Explains the captioner's own caption, or a given sentence, word by word.

        Args:
            image: See `caption`.
            sentence: Text about the image, at most as long as a caption may be; None takes the
                caption.

        Returns:
            An `Explanation`: of each word map, gate, log-probability, and what looking was worth.

        Raises:
            ValueError: The image cannot be read; or the sentence has no word, too many, or none
                that the captioner knows.
        """
        from sat_tf.inference.explain import explain, read_tokens, sentence_tokens

        check_argument("sentence", sentence, str | None)
        shown, tokens, search = None, None, self.config.search
        if sentence is not None:
            shown, tokens = sentence_tokens(self.vocabulary, sentence, search.max_length)
        pixels = self.pixels(image)
        if self._light():
            annotations = self._graphs.annotate(pixels)
            tokens = tokens or self._graphs.best(pixels, search).tokens
            read = self._graphs.read_tokens(pixels, tokens)
        else:
            annotations = self.annotate(pixels[np.newaxis])
            tokens = tokens or self.describe(annotations)[0].tokens
            read = read_tokens(self.model, annotations, tokens)
            self._captioned()
        found = explain(
            self.vocabulary,
            tokens,
            read,
            self.grid,
            shown=shown,
            length_power=search.length_power,
            image=pixels.round().astype(np.uint8),
        )
        if (known := self.limits.familiarity) is None:
            return found
        # Confidence is of what a search found, so a sentence has none.
        return dataclasses.replace(found, familiarity=float(known.of(np.asarray(annotations))[0]))

    def _captioned(self) -> None:
        if self.after_first_caption is not None:
            self.after_first_caption()
            self.after_first_caption = None

    def _first(self, pixels: np.ndarray, search: SearchConfig | None) -> Caption:
        if self._light():
            return self._graphs.best(pixels, search or self.config.search)
        return self._by_model([pixels], search)[0][0]

    def _each(
        self, images: Iterable[ImageInput], search: SearchConfig | None
    ) -> Iterator[tuple[ImageInput, Caption | None]]:
        check_argument("search", search, SearchConfig | None)
        if self._light():
            caption, size = functools.partial(map, lambda one: self._first(one, search)), 1
        else:
            caption, size = lambda read: (b[0] for b in self._by_model(read, search)), _BATCH
        from sat_tf.inference.batch import caption_each  # one caption takes none of it

        return caption_each(images, self.pixels, caption, size)

    def _by_model(
        self, pixels: Sequence[np.ndarray], search: SearchConfig | None
    ) -> list[list[Caption]]:
        """Returns all hypotheses of each image, by TensorFlow."""
        if not pixels:
            return []
        found = self._beams(self.annotate(np.stack(pixels)), search)
        self._captioned()
        seen = [one.round().astype(np.uint8) for one in pixels]
        return [
            [dataclasses.replace(caption, image=image) for caption in beam]
            for image, beam in zip(seen, found, strict=True)
        ]

    def _light(self) -> bool:
        """Returns whether graphs caption, by the present choice of locations."""
        if self._graphs is None or self._model is not None:
            return False
        return self.config.attention.selection == self._source.config.attention.selection

    def pixels(self, image: ImageInput) -> np.ndarray:
        """Returns the encoder's input, float32 `[S, S, 3]`, 0..255; see `read_pixels`."""
        encoder = self.config.encoder
        return read_pixels(image, encoder.image_size, encoder.resize)

    def annotate(self, pixels: tf.Tensor) -> tf.Tensor:
        """Encodes images `[B, S, S, 3]`, 0..255, as annotations `[B, L, D]`.

        Raises:
            ValueError: The images are of another shape.
        """
        import tensorflow as tf

        pixels = tf.cast(pixels, tf.float32)
        self.model.encoder.check_shape(pixels.shape)
        return self._encode(pixels)

    def describe(
        self, annotations: tf.Tensor | np.ndarray, search: SearchConfig | None = None
    ) -> list[Caption]:
        """Captions images by their annotations `[B, L, D]`."""
        return [beam[0] for beam in self._beams(annotations, search)]

    def _beams(
        self, annotations: tf.Tensor | np.ndarray, search: SearchConfig | None
    ) -> list[list[Caption]]:
        """Returns all hypotheses of each image; the best one lists the others, and has limits."""
        import tensorflow as tf

        hypotheses = tf.nest.map_structure(np.asarray, self.search(annotations, search))
        rows, beam = hypotheses.scores.shape
        bests, others = [], []
        for row in range(rows):
            best, *rest = (self._read_one(hypotheses, row, k) for k in range(beam))
            others.append([other for other in rest if other.text])
            listed = tuple((other.text, other.score) for other in others[-1])
            bests.append(dataclasses.replace(best, alternatives=listed))
        bests = self.limits.told(bests, np.asarray(annotations), search or self.config.search)
        return [[best, *rest] for best, rest in zip(bests, others, strict=True)]

    def search(
        self, annotations: tf.Tensor | np.ndarray, search: SearchConfig | None = None
    ) -> Hypotheses:
        """Runs beam search over annotations `[B, L, D]`, compiled once per setting."""
        import tensorflow as tf

        search = check_argument("search", search, SearchConfig | None) or self.config.search
        annotations = tf.cast(annotations, tf.float32)
        shape = (math.prod(self.grid), self.model.encoder.annotation_dim)
        if not annotations.shape.is_compatible_with((None, *shape)):
            expected = f"shape [B, {shape[0]}, {shape[1]}]"
            raise invalid_value("annotations", expected, annotations.shape.as_list())
        if search not in self._searches:
            run = functools.partial(self.model.search, search=search)
            self._searches[search] = tf.function(run, autograph=False, reduce_retracing=True)
        return self._searches[search](annotations)

    def _read_one(self, hypotheses: Hypotheses, row: int, k: int) -> Caption:
        length = int(hypotheses.lengths[row, k])
        ids = hypotheses.token_ids[row, k, :length]
        cut = length == hypotheses.token_ids.shape[-1] - 1  # and never asked for its end
        alpha = beta = None
        if self.config.attention.kind != "none":
            alpha, beta = (part[row, k, :length] for part in hypotheses.auxiliary)
            alpha = alpha.reshape(length, *self.grid)
        return Caption(
            text=self.vocabulary.decode(ids),
            score=float(hypotheses.scores[row, k]),
            log_prob=float(hypotheses.log_probs[row, k]),
            words=tuple(self.vocabulary.words[i] for i in ids),
            log_probs=hypotheses.word_log_probs[row, k, :length],
            alpha=alpha,
            beta=beta,
            language=self.vocabulary.language,
            tokens=(*map(int, ids), *(() if cut else (END,))),
        )
