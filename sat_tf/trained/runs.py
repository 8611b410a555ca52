"""Loads captioners by the name of a run or of a published model: images in, captions out."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import length_hint
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from sat_tf.commands import native_log_kept
from sat_tf.config import AttentionConfig, CaptionerConfig, EncoderConfig, Inference, SearchConfig
from sat_tf.errors import RunError, invalid_value, other_version
from sat_tf.fields import check_argument, from_dict
from sat_tf.files import sha256_of
from sat_tf.images.pillow import ImageInput, read_pixels
from sat_tf.run_folder import RunFolder, read_captioner, read_object
from sat_tf.subwords import whole_words
from sat_tf.trained import published
from sat_tf.trained.captions import Caption
from sat_tf.trained.explain import Explanation, WordByWord, explain, sentence_tokens
from sat_tf.trained.lite import cache
from sat_tf.trained.lite.captioner import LiteRTCaptioner, is_export, newest
from sat_tf.trained.lite.captioner import load as load_export
from sat_tf.trained.many import caption_each, image_files
from sat_tf.vocabulary import END, SPECIAL_TOKENS, Vocabulary

if TYPE_CHECKING:
    import tensorflow as tf

    from sat_tf.captioner import Captioner
    from sat_tf.search import Hypotheses


_BYTES_PER_WEIGHT = 4  # of a run's file, which is not compressed


def load(run_dir: str | Path) -> TrainedCaptioner:
    """Loads the best captioner of a run, or a published one.

    Args:
        run_dir: Folder written by `python -m training.train`, `python -m training.publish` or
            `python -m serving.export --format litert`, of which the last needs no TensorFlow; or
            the name of a captioner that ships (`sat_tf.trained.published.names()`); or
            `hf://OWNER/NAME[@REVISION]` on the Hugging Face Hub.

    Returns:
        A `TrainedCaptioner`, which needs neither the data set nor the encoder's weights file.

    Raises:
        RunError: The folder is not a run, or its files do not fit each other.
    """
    return load_light(check_argument("run_dir", run_dir, str | Path))


def load_captioner(run_dir: str | Path) -> TrainedCaptioner:
    """Loads a captioner with its model; see `load`."""
    return _Source.read(_located(run_dir)).load()


def load_light(run_dir: str | Path, images: int = 1) -> TrainedCaptioner:
    """Loads a captioner that does without TensorFlow as long as nothing needs the model.

    It captions over LiteRT graphs from the cache. Where there are none yet, TensorFlow captions,
    and the first caption has them made by another process.

    Args:
        run_dir: See `load`.
        images: Images that will be captioned; many of them take the model if there is a GPU.
    """
    path = _located(run_dir)
    if is_export(path):
        source = _Source.exported(path)
        return TrainedCaptioner(source, source.vocabulary, path, None, source.export)
    source = _Source.read(path)
    if not cache.usable(source.config) or (source.has_weights and cache.worth_a_gpu(images)):
        return source.load()
    digest = source.digest()
    name = source.fingerprint(digest)
    graphs = cache.find(name)
    if graphs is None and source.packed.is_dir():
        graphs = cache.unpack(source.path, name)
    if graphs is not None:
        return TrainedCaptioner(source, source.vocabulary, source.path, digest, graphs)
    captioner = source.load()
    name = source.fingerprint(captioner.weights_sha256)
    captioner.after_first_caption = functools.partial(cache.make_behind, source.path, name)
    return captioner


def graphs_missing(run_dir: str | Path) -> bool:
    """Returns whether `load` would caption by graphs if they were made."""
    path = _located(run_dir)
    if is_export(path) or not (source := _Source.read(path)).has_weights:
        return False
    return cache.usable(source.config) and cache.missing(source.fingerprint(source.digest()))


def make_graphs(*run_dirs: str | Path) -> list[Path | None]:
    """Makes the graphs that `load` captions with, where they are not there yet.

    Captioners with the same encoder share its graph. Waits for another process that makes graphs.

    Returns:
        The folder of each captioner's graphs; None if LiteRT cannot hold it.
    """
    folders = []
    with cache.turn():
        for run_dir in run_dirs:
            source = _Source.read(_located(run_dir))
            if (folder := cache.folder_of(source.fingerprint(source.digest()))) is None:
                captioner = source.load()
                folder = cache.make(captioner, source.fingerprint(captioner.weights_sha256))
            folders.append(folder)
    return folders


class Graphs(NamedTuple):
    """Graphs of a captioner on this machine.

    Attributes:
        folder: The folder, see `sat_tf.lite.load`.
        name: Number of an export's version; without one, the captioner's name.
        fingerprint: Name of what they were made of; None for an export.
    """

    folder: Path
    name: str
    fingerprint: str | None


def graphs_of(run_dir: str | Path) -> Graphs:
    """Returns the graphs that `load` captions with, made if they are not there yet.

    Raises:
        RunError: As `load`; or LiteRT cannot hold the captioner.
    """
    path = _located(run_dir)
    if is_export(path):
        return Graphs(path, path.resolve().name, None)
    source = _Source.read(path)
    name = source.fingerprint(source.digest())
    if not source.has_weights:
        cache.unpack(source.path, name)
        folder = cache.folder_of(name)
    else:
        (folder,) = make_graphs(path) if cache.usable(source.config) else (None,)
    if folder is None:
        raise RunError(
            f"{path} cannot caption without TensorFlow: LiteRT is not installed, is switched off, "
            "or cannot hold it. Export it as a SavedModel."
        )
    return Graphs(folder, path.resolve().name, name)


def _located(run_dir: str | Path) -> Path:
    """Returns a captioner's folder; of the versions of a LiteRT export, the newest one's."""
    path = published.locate(run_dir)
    return version if is_export(version := newest(path)) else path


@dataclass(frozen=True)
class _Source:
    """A folder with a captioner: its configuration and words; the weights are read when needed."""

    path: Path
    config: CaptionerConfig
    vocabulary: Vocabulary
    is_run: bool
    export: LiteRTCaptioner | None = None

    @classmethod
    def read(cls, path: Path) -> _Source:
        """Reads and checks all but the weights, for a folder that has some."""
        if is_export(path):
            raise _without_weights(path)
        if not (path / published.CONFIG).is_file() and any(path.glob("*/saved_model.pb")):
            raise RunError(f"{path} holds SavedModels for TensorFlow Serving: name their run.")
        folder, is_run = RunFolder(path), not published.is_published(path)
        if not is_run:
            published.checked_files(path, (published.CONFIG, published.VOCABULARY))
        config, vocabulary = read_config(folder), read_vocabulary(folder)
        if is_run and not folder.best_weights.is_file():
            raise folder.without_weights()
        return cls(path, config, vocabulary, is_run)

    @classmethod
    def exported(cls, path: Path) -> _Source:
        """Opens a LiteRT export."""
        try:
            export = load_export(path, cache.threads())
        except ImportError as error:
            raise RunError(f"{path} holds LiteRT graphs. {error}") from error
        return cls(path, _exported_config(path, export), export.vocabulary, False, export)

    @property
    def packed(self) -> Path:
        """Folder of a captioner's graphs in a wheel."""
        return self.path / published.GRAPHS

    @property
    def has_weights(self) -> bool:
        """False for a LiteRT export, and for a captioner in a wheel."""
        return self.export is None and not self.packed.is_dir()

    def load(self) -> TrainedCaptioner:
        """Loads the captioner with its model."""
        model, digest = self.load_model()
        return TrainedCaptioner(model, self.vocabulary, self.path, digest)

    def digest(self) -> str | None:
        """Returns the SHA-256 of a run's weights."""
        return sha256_of(RunFolder(self.path).best_weights) if self.is_run else None

    def fingerprint(self, digest: str | None) -> str:
        """Returns the name of the graphs in the cache, of a run's weights with this SHA-256."""
        if self.is_run:
            hashes = [digest]
        elif self.has_weights:
            hashes = published.weight_hashes(self.path)
        else:  # what is unpacked is known by its own content, not by weights that are not there
            hashes = sorted(published.graph_hashes(self.path).values())
        return cache.fingerprint(self.config, self.vocabulary, hashes)

    def load_model(self) -> tuple[Captioner, str | None]:
        """Loads the model with TensorFlow; returns it with the SHA-256 of a run's weights."""
        if not self.has_weights:
            raise _without_weights(self.path)
        try:
            with native_log_kept():
                from sat_tf.captioner import Captioner
                from sat_tf.weights import count_weights, load_compact, load_weights, make_fitting
        except ModuleNotFoundError as error:
            if error.name not in ("tensorflow", "keras"):
                raise
            raise RunError(
                f"{self.path}: without {error.name} there are captions alone, and those by graphs "
                "that it makes once: `pip install tensorflow keras`. A wheel of `make wheel` and "
                "an export for LiteRT have graphs already."
            ) from error
        make = functools.partial(
            Captioner,
            self.config,
            len(self.vocabulary),
            load_encoder_weights=False,
            dtype="float32",
        )
        if self.is_run:
            path = RunFolder(self.path).best_weights
            model = make_fitting(make, path.stat().st_size // _BYTES_PER_WEIGHT, path)
            return model, load_weights(model, path)
        files = published.checked_files(self.path)
        paths = [files[name] for name in published.WEIGHTS.values()]
        model = make_fitting(make, count_weights(paths), self.path)
        load_compact(model, paths)
        return model, None


def _without_weights(path: Path) -> RunError:
    return RunError(
        f"{path} holds graphs for captions without TensorFlow, and no weights: for anything else "
        "name the run, or a captioner of a checkout, that they were made of."
    )


def read_config(run_dir: Path | RunFolder) -> CaptionerConfig:
    """Reads the captioner's part of a run's configuration.

    Raises:
        RunError: The folder is not a captioner's run, or of another version.
    """
    path, values = RunFolder(run_dir).config, read_captioner(run_dir)
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


def _exported_config(path: Path, export: LiteRTCaptioner) -> CaptionerConfig:
    """Returns the configuration of a LiteRT export, as far as it says; the search is its own."""
    made, kind = export.settings, "none" if export.settings.grid is None else "soft"
    if RunFolder(path).config.is_file():
        config = read_config(path)
        same = (config.encoder.image_size, config.encoder.resize, config.attention.kind == "none")
        if same != (made.image_size, made.resize, kind == "none"):
            raise RunError(f"The files in {path} do not fit each other: export the run again.")
    else:  # of an earlier version
        encoder = EncoderConfig(image_size=made.image_size, resize=made.resize)
        config = CaptionerConfig(encoder=encoder, attention=AttentionConfig(kind=kind))
    return dataclasses.replace(config, search=made.search)


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

    Captions come from the model, or from graphs that equal it as long as nobody asked for the
    model: `model`, `annotate`, `describe` and `search` load it, and TensorFlow, first.

    Args:
        model: The captioner, or the files to load it from.
        vocabulary: Its words.
        path: Folder of the run it was loaded from, if any.
        weights_sha256: SHA-256 (hexadecimal) of the file of its weights, if it was loaded from one.
        graphs: LiteRT graphs of the same captioner.
    """

    def __init__(
        self,
        model: Captioner | _Source,
        vocabulary: Vocabulary,
        path: Path | None = None,
        weights_sha256: str | None = None,
        graphs: LiteRTCaptioner | None = None,
    ) -> None:
        self._source = model if isinstance(model, _Source) else None
        self._model = None if self._source else model
        if self._model and len(vocabulary) != model.vocabulary_size:
            expected = f"the model's {model.vocabulary_size} words"
            raise invalid_value("vocabulary", expected, f"{len(vocabulary)}")
        self.vocabulary = vocabulary
        self.path, self.weights_sha256 = path, weights_sha256
        self._config, self._graphs = model.config, graphs
        self.after_first_caption: Callable[[], object] | None = None
        self._searches: dict[SearchConfig, tf.types.experimental.PolymorphicFunction] = {}
        self._reader: tf.types.experimental.PolymorphicFunction | None = None

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
        self._reader = None

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
            images = image_files([Path(images)])
        check_argument("images", images, Iterable)
        return (one for one in self._each(images, search) if one[1] is not None)

    def beam(self, image: ImageInput, search: SearchConfig | None = None) -> list[Caption]:
        """Captions an image; returns all hypotheses with their maps, best first; see `caption`."""
        check_argument("search", search, SearchConfig | None)
        pixels = self.pixels(image)
        if self._light(1):
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
        check_argument("sentence", sentence, str | None)
        shown, tokens, search = None, None, self.config.search
        if sentence is not None:
            shown, tokens = sentence_tokens(self.vocabulary, sentence, search.max_length)
        pixels = self.pixels(image)
        if self._light(1):
            tokens = tokens or self._graphs.best(pixels, search).tokens
            read = self._graphs.read_tokens(pixels, tokens)
        else:
            annotations = self.annotate(pixels[np.newaxis])
            tokens = tokens or self.describe(annotations)[0].tokens
            read = self._read_tokens(annotations, tokens)
            self._captioned()
        return explain(
            self.vocabulary,
            tokens,
            read,
            self.grid,
            shown=shown,
            length_power=search.length_power,
            image=pixels.round().astype(np.uint8),
        )

    def _read_tokens(self, annotations: tf.Tensor, tokens: Sequence[int]) -> WordByWord:
        import tensorflow as tf

        from sat_tf.trained.reading import read_tokens

        if self._reader is None:
            read = functools.partial(read_tokens, self.model)
            self._reader = tf.function(read, autograph=False, reduce_retracing=True)
        found = [part.numpy() for part in self._reader(annotations, tf.constant(tokens, tf.int32))]
        return WordByWord(*(found if self.model.decoder.attends else (found[0], None, None, None)))

    def _captioned(self) -> None:
        if self.after_first_caption is not None:
            self.after_first_caption()
            self.after_first_caption = None

    def _first(self, pixels: np.ndarray, search: SearchConfig | None) -> Caption:
        if self._light(1):
            return self._graphs.best(pixels, search or self.config.search)
        return self._by_model([pixels], search)[0][0]

    def _each(
        self, images: Iterable[ImageInput], search: SearchConfig | None
    ) -> Iterator[tuple[ImageInput, Caption | None]]:
        check_argument("search", search, SearchConfig | None)
        # How many images a generator has is not known.
        if self._light(length_hint(images, cache.MANY)):
            caption, size = functools.partial(map, lambda one: self._first(one, search)), 1
        else:
            caption, size = lambda read: (b[0] for b in self._by_model(read, search)), cache.MANY
        return caption_each(images, self.pixels, caption, size)

    def _by_model(
        self, pixels: Sequence[np.ndarray], search: SearchConfig | None
    ) -> list[list[Caption]]:
        """Returns all hypotheses of each image, by TensorFlow."""
        if not pixels:
            return []
        found = self._read_beams(self.search(self.annotate(np.stack(pixels)), search))
        self._captioned()
        seen = [one.round().astype(np.uint8) for one in pixels]
        return [
            [dataclasses.replace(caption, image=image) for caption in beam]
            for image, beam in zip(seen, found, strict=True)
        ]

    def _light(self, images: int) -> bool:
        """Returns whether graphs caption: few images, by the present choice of locations."""
        if self._graphs is None or self._model is not None:
            return False
        if self.config.attention.selection != self._source.config.attention.selection:
            return False
        return not (self._source.has_weights and cache.worth_a_gpu(images))

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
        return self.read(self.search(annotations, search))

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

    def read(self, hypotheses: Hypotheses) -> list[Caption]:
        """Converts hypotheses to captions, one per image."""
        return [beam[0] for beam in self._read_beams(hypotheses)]

    def _read_beams(self, hypotheses: Hypotheses) -> list[list[Caption]]:
        """Converts hypotheses; the best one of an image lists the others' texts."""
        import tensorflow as tf

        hypotheses = tf.nest.map_structure(lambda tensor: np.asarray(tensor), hypotheses)
        rows, beam = hypotheses.scores.shape
        read = [[self._read_one(hypotheses, row, k) for k in range(beam)] for row in range(rows)]
        beams = []
        for best, *others in read:
            others = [other for other in others if other.text]
            listed = tuple((other.text, other.score) for other in others)
            beams.append([dataclasses.replace(best, alternatives=listed), *others])
        return beams

    def _read_one(self, hypotheses: Hypotheses, row: int, k: int) -> Caption:
        length = int(hypotheses.lengths[row, k])
        ids = hypotheses.token_ids[row, k, :length]
        cut = length == hypotheses.token_ids.shape[-1] - 1  # and never asked for its end
        alpha = beta = None
        if self.config.attention.kind != "none":
            alpha, beta = (part[row, k, :length] for part in hypotheses.auxiliary)
            alpha = alpha.reshape(length, *self.grid)
        words = [self.vocabulary.forms[i] for i in ids]
        log_probs = hypotheses.word_log_probs[row, k, :length]
        return Caption(
            text=self.vocabulary.decode(ids),
            score=float(hypotheses.scores[row, k]),
            log_prob=float(hypotheses.log_probs[row, k]),
            **whole_words(words, log_probs=log_probs, alpha=alpha, beta=beta),
            language=self.vocabulary.language,
            tokens=(*map(int, ids), *(() if cut else (END,))),
        )
