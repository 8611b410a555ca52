"""A captioner on LiteRT: the files of an export, three graphs, and the loop between them."""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
import mmap
import re
import threading
import typing
import weakref
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sat_tf.captions import Caption
from sat_tf.commands import without_stderr
from sat_tf.config import ImageSize, SearchConfig
from sat_tf.errors import invalid_value
from sat_tf.fields import check_argument
from sat_tf.files import json_object, read_content, sha256_of
from sat_tf.images.pillow import ImageInput, read_pixels
from sat_tf.lite.search import Hypothesis, beam_search, rank_by_consensus
from sat_tf.subwords import whole_words
from sat_tf.vocabulary import END, PAD, UNK, Vocabulary

FORMAT = 1
"""Version of the layout: raise it when `sat_tf.lite` can no longer read earlier folders."""

ENCODER, START, STEP = "encoder.tflite", "start.tflite", "step.tflite"
GRAPHS = (ENCODER, START, STEP)
SETTINGS, VOCABULARY, CONFIG = "captioner.json", "vocabulary.json", "config.json"

STATE = ("hidden", "memory")
"""Names of the LSTM's state, h and c, in the graphs."""
_ATTENTION = ("alpha", "beta")
_SHARED = re.compile(r"encoder-[0-9a-f]{16}\.tflite")
_MOST_BYTES = 2**32  # of all tensors of a graph
_ADVICE = "Write one with `python -m serving.export --format litert`"

# (inputs by name) -> outputs by name
Graph = Callable[..., dict[str, np.ndarray]]


@dataclass(frozen=True)
class Settings:
    """Settings that the host needs beside the graphs.

    Attributes:
        image_size: Side of the encoder's input, pixels.
        resize: `crop` or `squash`.
        grid: `(h, w)` of the attention maps; None without attention.
        search: Its beam is K, the rows of the step.
        precision: `float32`, `float16` or `int8`.
        sizes: Bytes of each graph.
        encoder: File of the encoder's graph; captioners side by side may share one, which then
            lies beside their folders.
        digests: SHA-256 of each graph and of the vocabulary; None in the cache, and in
            a folder of an earlier version.
    """

    image_size: ImageSize
    resize: Literal["crop", "squash"]
    grid: tuple[int, int] | None
    search: SearchConfig
    precision: str
    sizes: Mapping[str, int]
    encoder: str = ENCODER
    digests: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        for name, hint in typing.get_type_hints(type(self), include_extras=True).items():
            if name != "grid":
                check_argument(name, getattr(self, name), hint, "key")
        for name, size in self.sizes.items():
            check_argument(f"sizes[{name!r}]", size, int, "key")
        object.__setattr__(self, "grid", None if self.grid is None else check_grid(self.grid))
        if self.encoder != ENCODER and not _SHARED.fullmatch(self.encoder):
            raise invalid_value("encoder", f"{ENCODER} or encoder-HASH.tflite", self.encoder, "key")
        known = {self.encoder, START, STEP, VOCABULARY}
        if self.digests is not None and self.digests.keys() != known:
            got = ", ".join(self.digests)
            raise invalid_value("digests", f"those of {', '.join(sorted(known))}", got, "key")

    def files(self, folder: Path) -> dict[str, Path]:
        """Returns where the graphs are, by `GRAPHS`."""
        shared = folder / self.encoder
        if not shared.is_file() and self.encoder != ENCODER:
            shared = folder.absolute().parent / self.encoder
        return {ENCODER: shared, START: folder / START, STEP: folder / STEP}

    def to_json(self) -> str:
        """Returns a JSON object, with `FORMAT` as its `format`, and the search's among its keys."""
        values = asdict(self) | {"format": FORMAT, "forbidden": self.search.forbidden}
        values |= values.pop("search")
        del values["suppress_unknown"]
        return json.dumps(values, indent=2) + "\n"


def check_grid(grid: Any) -> tuple[int, int]:
    """Returns `(h, w)` of a file's attention maps.

    Raises:
        ValueError: It is not two positive integers.
    """
    sides = grid if isinstance(grid, list | tuple) else ()
    if len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
        raise invalid_value("grid", "two positive integers", str(grid)[:80], "key")
    return tuple(sides)


def read_settings(folder: Path) -> Settings:
    """Reads the settings of a folder, and checks that it is whole.

    Raises:
        ValueError: The folder is not a LiteRT export, one of another format, or not whole.
    """
    if not (folder / SETTINGS).is_file():
        raise ValueError(f"{folder} is not a LiteRT export: {_why_not(folder)}")
    try:
        values = json_object(read_content(folder / SETTINGS))
        version = values.pop("format", None)
    except ValueError as error:
        raise ValueError(f"{folder / SETTINGS} is damaged: {error}. {_ADVICE}.") from error
    if version != FORMAT:
        raise ValueError(
            f"{folder} is a LiteRT export of format {str(version)[:20]}, and this version of "
            f"sat_tf reads format {FORMAT}. Export the run again, or install the version that "
            "wrote it."
        )
    # Folders of earlier versions lack these.
    early = {"consensus": 0.0, "min_length": 1, "no_repeat_ngram": 0}
    values = early | {"encoder": ENCODER, "digests": None} | values
    of_search = {f.name for f in fields(SearchConfig)} - {"suppress_unknown"} | {"forbidden"}
    names = {f.name for f in fields(Settings)} - {"search"} | of_search
    if values.keys() != names:
        wrong = ", ".join(sorted(values.keys() ^ names))
        raise ValueError(f"{folder / SETTINGS} is damaged: look at {wrong}. {_ADVICE}.")
    search = {name: values.pop(name) for name in of_search}
    try:
        search["suppress_unknown"] = UNK in search.pop("forbidden")
        settings = Settings(**values, search=SearchConfig(**search))
    except (ValueError, TypeError) as error:
        why = str(error).rstrip(".")
        raise ValueError(f"{folder / SETTINGS} is damaged: {why}. {_ADVICE}.") from error
    for name, path in {**settings.files(folder), VOCABULARY: folder / VOCABULARY}.items():
        size = settings.sizes.get(name)
        if not path.is_file():
            raise ValueError(
                f"{folder} is not whole: {path.name} is missing. Copy or export it again."
            )
        if size is not None and path.stat().st_size != size:
            raise ValueError(
                f"{folder} is not whole: {path.name} has {path.stat().st_size} bytes, not {size}. "
                "Copy or export it again."
            )
    return settings


def newest(folder: Path) -> Path:
    """Returns the newest of the versions of an export in a folder; the folder without any."""
    versions = (path.parent for path in folder.glob(f"*/{SETTINGS}"))
    numbered = [path for path in versions if path.name.isdecimal()]
    return max(numbered, key=lambda path: int(path.name), default=folder)


def is_export(folder: Path) -> bool:
    """Returns whether a folder holds an export, whole or not."""
    return (folder / SETTINGS).is_file() and any((folder / name).is_file() for name in GRAPHS)


def _why_not(folder: Path) -> str:
    if not folder.is_dir():
        return "there is no such folder."
    if (folder / "saved_model.pb").exists():
        return f"it is a SavedModel for TensorFlow Serving. {_ADVICE}."
    return f"{SETTINGS} is missing. {_ADVICE}."


class Encoder:
    """The encoder's graph. Threads take turns.

    `Encoder.of` opens a file once per process. The annotations of the last images are kept:
    captioners that share an encoder run it once over an image.

    Args:
        path: The graph.
        threads: Threads of LiteRT.

    Attributes:
        pixels: `(1, S, S, 3)`, the shape of its input.
        shapes: Of its outputs: of `annotations`, `(1, L, D)`.
    """

    KEPT = 4
    """Images whose annotations are kept."""

    _open: weakref.WeakValueDictionary[tuple, Encoder] = weakref.WeakValueDictionary()
    _opening = threading.Lock()

    def __init__(self, path: Path, threads: int) -> None:
        self._graph = _open_graph(path, threads)
        self.pixels = _shapes(self._graph.get_input_details()).get("pixels")
        self.shapes = _shapes(self._graph.get_output_details())
        if len(self.shapes.get("annotations", ())) != 3:
            raise ValueError(
                f"{path} is not the graph of an encoder: its outputs are {self.shapes}."
            )
        self._turn = threading.Lock()
        self._kept: dict[bytes, dict[str, np.ndarray]] = {}

    @classmethod
    def of(cls, path: Path, threads: int) -> Encoder:
        """Returns the encoder of a file, as open in this process if it is."""
        path, found = path.resolve(), path.stat()
        key = (path, found.st_size, found.st_mtime_ns, threads)
        with cls._opening:
            if (encoder := cls._open.get(key)) is None:
                encoder = cls._open[key] = cls(path, threads)
            return encoder

    def __call__(self, pixels: np.ndarray) -> dict[str, np.ndarray]:
        """Encodes an image, float32 `[S, S, 3]`, 0 to 255; returns `annotations` `[1, L, D]`."""
        image = hashlib.blake2b(np.ascontiguousarray(pixels)).digest()
        with self._turn:
            if image not in self._kept:
                while len(self._kept) >= self.KEPT:
                    del self._kept[next(iter(self._kept))]  # the oldest
                self._kept[image] = self._graph(pixels=pixels[np.newaxis])
            return dict(self._kept[image])


class LiteRTCaptioner:
    """A captioner from a folder that `python -m serving.export --format litert` wrote.

    The encoder turns pixels into annotations; the start graph turns these into the LSTM's first
    state and what else every step reads; the step takes the last word of K hypotheses to the
    log-probabilities of the next. Threads take turns. Captioners of one process that share a file
    of the encoder share its memory, and its work on an image that all of them caption.

    Args:
        folder: The export.
        threads: Threads of LiteRT.

    Attributes:
        grid: `(h, w)` of the annotations; of an export without attention `(1, L)`.
        locations: L.

    Raises:
        ValueError: The folder is not a LiteRT export, one of another format, or not whole; or its
            files do not fit each other.
        ImportError: LiteRT is not installed.
    """

    def __init__(self, folder: str | Path, threads: int = 1) -> None:
        if threads < 1:
            raise invalid_value("threads", "at least 1", threads)
        folder = Path(folder)
        self.settings = read_settings(folder)
        self.vocabulary = Vocabulary.load(folder / VOCABULARY)
        paths = self.settings.files(folder)
        self._encode = Encoder.of(paths[ENCODER], threads)
        self._start, self._step = (_open_graph(paths[name], threads) for name in (START, STEP))
        self.locations = self._encode.shapes["annotations"][1]
        self.grid = self.settings.grid or (1, self.locations)
        self._check_sizes(folder)
        self._turn = threading.Lock()  # an interpreter serves one thread at a time

    def _check_sizes(self, folder: Path) -> None:
        """Holds settings and vocabulary against the graphs, before memory is taken for them."""
        side, beam = self.settings.image_size, self.settings.search.beam
        given = self._encode.shapes | _shapes(self._start.get_output_details())
        read, made = (
            _shapes(self._step.get_input_details()),
            _shapes(self._step.get_output_details()),
        )
        state = {name: (beam, *given.get(name, ())[1:]) for name in STATE}
        attention = {"alpha": (beam, self.locations), "beta": (beam,)}
        expected = {
            "pixels": ((1, side, side, 3), self._encode.pixels),
            "grid": (math.prod(self.grid), self.locations),
            "words": ((beam,), read.pop("words", ())),
            "inputs of the step": (given | state, given | read),
            "outputs of the step": (
                {"log_probs": (beam, len(self.vocabulary))}
                | state
                | (attention if self.settings.grid else {}),
                made,
            ),
        }
        for name, (wanted, found) in expected.items():
            if wanted != found:
                raise ValueError(
                    f"The files in {folder} do not fit each other: expected {wanted} as {name}, "
                    f"got {found}. Export it again."
                )

    def caption(self, image: ImageInput) -> Caption:
        """Captions an image: a file, bytes or pixels; see `read_pixels`."""
        pixels = read_pixels(image, self.settings.image_size, self.settings.resize)
        return self.beam(pixels)[0]

    def beam(self, pixels: np.ndarray, search: SearchConfig | None = None) -> list[Caption]:
        """Captions an image by the encoder's input, float32 `[S, S, 3]`, 0 to 255.

        Args:
            pixels: The image.
            search: Settings of the search; by default the export's. A beam that is wider than the
                export's takes several runs of the step's graph per word.

        Returns:
            All hypotheses with their maps, best first; the first one's `alternatives` are the rest.
        """
        search = search or self.settings.search
        with self._turn:
            found = self._search(pixels, search)
        if not found:
            raise ValueError(
                "The image has no caption: the search bars every word, or its probability is 0 or "
                "not known."
            )
        if search.consensus:
            found = rank_by_consensus(found, search.length_power, search.consensus)
        seen = pixels.round().astype(np.uint8)
        read = [self._read(one, search.length_power, seen) for one in found]
        others = tuple((caption.text, caption.score) for caption in read[1:])
        return [replace(read[0], alternatives=others), *read[1:]]

    def _search(self, pixels: np.ndarray, search: SearchConfig) -> list[Hypothesis]:
        rows = self.settings.search.beam
        width = -(-search.beam // rows) * rows  # of the state: whole runs of the step's graph
        encoded = self._encode(pixels)
        started = self._start(**encoded)
        # All hypotheses begin with the same state, and attend to the same annotations.
        state = {name: np.repeat(started.pop(name), width, axis=0) for name in STATE}
        attended = encoded | started

        def step(tokens: np.ndarray, parents: list[int]):
            tokens = np.pad(tokens, (0, width - len(tokens)), constant_values=PAD)
            parents = parents + [0] * (width - len(parents))
            before = {name: part[parents] for name, part in state.items()}
            runs = []
            for first in range(0, width, rows):
                part = slice(first, first + rows)
                inputs = {name: value[part] for name, value in before.items()}
                runs.append(self._step(words=tokens[part], **inputs, **attended))
            outputs = {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
            state.update((name, outputs[name]) for name in STATE)
            return outputs["log_probs"], [outputs[name] for name in _ATTENTION if name in outputs]

        return beam_search(step, search)

    def _read(self, found: Hypothesis, power: float, seen: np.ndarray) -> Caption:
        length, alpha, beta = found.length, None, None
        if self.settings.grid is not None and length:
            alpha, beta = (np.stack(part) for part in zip(*found.auxiliary[:length], strict=True))
            alpha = alpha.reshape(length, *self.settings.grid)
        words = [self.vocabulary.forms[token] for token in found.tokens if token != END]
        log_probs = np.diff(found.totals[:length], prepend=np.float32(0.0))
        return Caption(
            text=self.vocabulary.decode(found.tokens),
            score=float(found.score(power)),
            log_prob=float(found.totals[-1]),
            **whole_words(words, log_probs=log_probs, alpha=alpha, beta=beta),
            language=self.vocabulary.language,
            image=seen,
        )


def load(folder: str | Path, threads: int = 1) -> LiteRTCaptioner:
    """Loads a LiteRT export, see `LiteRTCaptioner`, or the newest in a folder of its versions.

    Raises:
        ValueError: As there, or a file is another export's.
    """
    folder = newest(Path(folder))
    captioner = LiteRTCaptioner(folder, threads)
    paths = captioner.settings.files(folder) | {VOCABULARY: folder / VOCABULARY}
    for name, digest in (captioner.settings.digests or {}).items():
        if sha256_of(paths[name]) != digest:
            raise ValueError(
                f"{paths[name]} is not the file that this export was written with. Copy the whole "
                "folder, or export it again."
            )
    return captioner


def _shapes(details: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a graph's inputs or outputs by name."""
    return {name: tuple(map(int, found["shape"])) for name, found in details.items()}


def _open_graph(path: Path, threads: int) -> Graph:
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise ImportError("LiteRT is not installed: `pip install ai-edge-litert`.") from error
    try:
        interpreter = Interpreter(str(path), num_threads=threads)
        sizes = (math.prod(map(int, t["shape"])) for t in interpreter.get_tensor_details())
        if 4 * sum(sizes) > _MOST_BYTES:
            raise ValueError(f"it takes more than {_MOST_BYTES:,} bytes of memory")
        with without_stderr():  # it names its delegate
            interpreter.allocate_tensors()
        _give_back_pages(path)
        return interpreter.get_signature_runner()
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"{path} cannot be read by LiteRT: {error}. Export it again.") from error


def _give_back_pages(path: Path) -> None:
    """Gives back the memory that a graph's file takes: LiteRT has its own copy of the weights.

    What it reads once more is loaded again. Works on Linux alone.
    """
    try:
        maps = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
        madvise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return
    mapped = f" {path.resolve()}"
    for line in maps:
        if line.endswith(mapped):
            start, end = (int(edge, 16) for edge in line.split(" ")[0].split("-"))
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)
