"""A captioner on LiteRT: the files of an export, three graphs, and the loop between them."""

from __future__ import annotations

import json
import math
import re
import threading
import typing
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sat_tf.config import ImageSize, SearchConfig
from sat_tf.images.pillow import ImageInput, read_pixels
from sat_tf.inference.captions import Caption
from sat_tf.inference.confidence import Limits, limit_paths, limits_in
from sat_tf.inference.litert_graph import STATE, Encoder, Graph
from sat_tf.inference.litert_search import Found, Step, beam_search, rank_by_consensus
from sat_tf.text.vocabulary import END, PAD, UNK, Vocabulary
from sat_tf.text.vocabulary import START as START_WORD
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import check_argument
from sat_tf.util.files import json_object, read_content, sha256_of

if TYPE_CHECKING:
    from sat_tf.inference.explain import WordByWord

FORMAT = 2
"""Version of the layout: raise it when `sat_tf.inference` can no longer read earlier folders."""

ENCODER, START, STEP = "encoder.tflite", "start.tflite", "step.tflite"
GRAPHS = (ENCODER, START, STEP)
SETTINGS, VOCABULARY, CONFIG = "captioner.json", "vocabulary.json", "config.json"

_ATTENTION = ("alpha", "beta")
_SHARED = re.compile(r"encoder-[0-9a-f]{16}\.tflite")
_ADVICE = "Write one with `python -m serving.export_litert`"


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
        digests: SHA-256 of each graph and of the vocabulary.
    """

    image_size: ImageSize
    resize: Literal["crop", "squash"]
    grid: tuple[int, int] | None
    search: SearchConfig
    precision: str
    sizes: Mapping[str, int]
    encoder: str
    digests: Mapping[str, str]

    def __post_init__(self) -> None:
        for name, hint in typing.get_type_hints(type(self), include_extras=True).items():
            if name != "grid":
                check_argument(name, getattr(self, name), hint, "key")
        for name, size in self.sizes.items():
            check_argument(f"sizes[{name!r}]", size, int, "key")
        object.__setattr__(self, "grid", None if self.grid is None else _checked_grid(self.grid))
        if self.encoder != ENCODER and not _SHARED.fullmatch(self.encoder):
            raise invalid_value("encoder", f"{ENCODER} or encoder-HASH.tflite", self.encoder, "key")
        known = {self.encoder, START, STEP, VOCABULARY}
        if self.digests.keys() != known:
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


def _checked_grid(grid: Any) -> tuple[int, int]:
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


class LiteRTCaptioner:
    """A captioner from a folder that `python -m serving.export_litert` wrote.

    The encoder turns pixels into annotations; the start graph turns these into the LSTM's first
    state and what else every step reads; the step takes the last word of K hypotheses to the
    log-probabilities of the next. Threads take turns. Captioners of one process that share a file
    of the encoder share its memory, and its work on an image that all of them caption.

    Args:
        folder: The export.
        threads: Threads of LiteRT; a step takes one.

    Attributes:
        grid: `(h, w)` of the annotations; of an export without attention `(1, L)`.
        locations: L.
        limits: What it knows of its limits.
        folder: Its folder.

    Raises:
        ValueError: The folder is not a LiteRT export, one of another format, or not whole; or its
            files do not fit each other.
        ImportError: LiteRT is not installed.
    """

    def __init__(self, folder: str | Path, threads: int = 1) -> None:
        if threads < 1:
            raise invalid_value("threads", "at least 1", threads)
        self.folder = folder = Path(folder)
        self.settings = read_settings(folder)
        self.vocabulary = Vocabulary.load(folder / VOCABULARY)
        paths = self.settings.files(folder)
        self._encode = Encoder.of(paths[ENCODER], threads)
        self._start = Graph(paths[START], threads)
        # On two threads a step of int8 takes 65 % more processor time, and hardly less time.
        self._step = Graph(paths[STEP], 1)
        self.locations = self._encode.shapes["annotations"][1]
        self.grid = self.settings.grid or (1, self.locations)
        self._check_sizes(folder)
        self.limits = Limits()
        self._turn = threading.Lock()  # an interpreter serves one thread at a time

    def _check_sizes(self, folder: Path) -> None:
        """Holds settings and vocabulary against the graphs, before memory is taken for them."""
        side, beam = self.settings.image_size, self.settings.search.beam
        given = self._encode.shapes | self._start.outputs
        read, made = dict(self._step.inputs), self._step.outputs
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
        return self.best(read_pixels(image, self.settings.image_size, self.settings.resize))

    def best(self, pixels: np.ndarray, search: SearchConfig | None = None) -> Caption:
        """Returns the first of `beam`."""
        best = self._read(self._find(pixels, search), 0, _seen(pixels))
        return self._with_limits(best, pixels, search)

    def beam(self, pixels: np.ndarray, search: SearchConfig | None = None) -> list[Caption]:
        """Captions an image by the encoder's input, float32 `[S, S, 3]`, 0 to 255.

        Args:
            pixels: The image.
            search: Settings of the search; by default the export's. A beam that is wider than the
                export's takes several runs of the step's graph per word.

        Returns:
            All hypotheses with their maps, best first; the first one's `alternatives` are the rest.
        """
        found, seen = self._find(pixels, search), _seen(pixels)
        best, *others = (self._read(found, k, seen) for k in range(len(found.tokens)))
        return [self._with_limits(best, pixels, search), *others]

    def _with_limits(
        self, best: Caption, pixels: np.ndarray, search: SearchConfig | None
    ) -> Caption:
        # The encoder has kept the annotations.
        (told,) = self.limits.told([best], self.annotate(pixels), search or self.settings.search)
        return told

    def annotate(self, pixels: np.ndarray) -> np.ndarray:
        """Encodes an image, the encoder's input, as annotations `[1, L, D]`."""
        return self._encode(pixels)["annotations"]

    def _find(self, pixels: np.ndarray, search: SearchConfig | None) -> Found:
        search = search or self.settings.search
        with self._turn:
            found = beam_search(self._steps_over(pixels), search)
        if not len(found.tokens):
            raise ValueError(
                "The image has no caption: the search bars every word, or its probability is 0 or "
                "not known."
            )
        return rank_by_consensus(found, search.consensus) if search.consensus else found

    def read_tokens(self, pixels: np.ndarray, tokens: Sequence[int]) -> WordByWord:
        """Reads the T tokens of a sentence about an image, each from the true ones before it.

        Where all annotations are their mean, any map gives the context of a uniform one. So a step
        with this mean in their place, from a state of the real maps, is a step under a uniform map.
        """
        from sat_tf.inference.explain import WordByWord

        rows, words = self.settings.search.beam, np.array([START_WORD, *tokens[:-1]], np.int32)
        states, outputs = [], []
        with self._turn:
            state, attended = self._begin(pixels)
            state = {name: np.repeat(part, rows, axis=0) for name, part in state.items()}
            for word in words:
                states.append(state)
                outputs.append(self._step(words=np.full(rows, word), **state))
                state = {name: outputs[-1][name] for name in STATE}
            log_probs = [o["log_probs"][0, n] for o, n in zip(outputs, tokens, strict=True)]
            if self.settings.grid is None:
                return WordByWord(np.array(log_probs), None, None, None)
            annotations, uniform = attended["annotations"], []
            mean = annotations.mean(axis=1, keepdims=True)
            self._step.set(annotations=np.broadcast_to(mean, annotations.shape))
            for first in range(0, len(words), rows):
                # Rows beyond the last word are not read.
                place = np.arange(first, first + rows) % len(words)
                before = {name: np.stack([states[t][name][0] for t in place]) for name in STATE}
                found = self._step(words=words[place], **before)["log_probs"]
                uniform += [row[n] for row, n in zip(found, tokens[first:], strict=False)]
        alpha, beta = (np.stack([one[name][0] for one in outputs]) for name in _ATTENTION)
        return WordByWord(np.array(log_probs), np.array(uniform), alpha, beta)

    def _begin(self, pixels: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Sets what all steps over an image read; returns the first state, and it."""
        encoded = self._encode(pixels)
        started = self._start(**encoded)
        state = {name: started.pop(name) for name in STATE}
        attended = encoded | started
        self._step.set(**attended)
        return state, attended

    def _steps_over(self, pixels: np.ndarray) -> Step:
        """Returns the step of a search over an image."""
        rows = self.settings.search.beam
        # All hypotheses begin with the same state, and attend to the same annotations.
        state, _ = self._begin(pixels)

        def step(tokens: np.ndarray, parents: np.ndarray):
            runs = -(-len(tokens) // rows)
            words, origins = np.full(runs * rows, PAD, np.int32), np.zeros(runs * rows, np.intp)
            words[: len(tokens)], origins[: len(parents)] = tokens, parents
            outputs = []
            for first in range(0, len(words), rows):
                part = slice(first, first + rows)
                before = {name: value[origins[part]] for name, value in state.items()}
                outputs.append(self._step(words=words[part], **before))
            made = outputs[0] if runs == 1 else _joined(outputs)
            state.update((name, made[name]) for name in STATE)
            return made["log_probs"], [made[name] for name in _ATTENTION if name in made]

        return step

    def _read(self, found: Found, k: int, seen: np.ndarray) -> Caption:
        """Converts one of the captions found; the best one lists the others' texts."""
        length, alpha, beta = found.lengths[k], None, None
        if self.settings.grid is not None:
            alpha, beta = (part[k, :length] for part in found.auxiliary)
            alpha = alpha.reshape(length, *self.settings.grid)
        ids, decode = found.tokens[k, :length], self.vocabulary.decode
        log_probs = np.diff(found.totals[k, :length], prepend=np.float32(0.0))
        others = zip(found.tokens[1:], found.scores[1:], strict=True) if k == 0 else ()
        return Caption(
            text=decode(ids),
            score=float(found.scores[k]),
            log_prob=float(found.log_probs[k]),
            words=tuple(self.vocabulary.words[i] for i in ids),
            log_probs=log_probs,
            alpha=alpha,
            beta=beta,
            alternatives=tuple((decode(tokens), float(score)) for tokens, score in others),
            language=self.vocabulary.language,
            image=seen,
            tokens=tuple(map(int, found.tokens[k, : length + (END in found.tokens[k])])),
        )


def _seen(pixels: np.ndarray) -> np.ndarray:
    """Returns the encoder's input as an image to show."""
    return pixels.round().astype(np.uint8)


def _joined(outputs: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([made[name] for made in outputs]) for name in outputs[0]}


def load(folder: str | Path, threads: int = 1) -> LiteRTCaptioner:
    """Loads a LiteRT export, see `LiteRTCaptioner`, or the newest in a folder of its versions.

    Raises:
        ValueError: As there, or a file is another export's.
    """
    folder = newest(Path(folder))
    captioner = LiteRTCaptioner(folder, threads)
    check_digests(folder, captioner.settings)
    graphs = _digests(captioner.settings)
    captioner.limits = limits_in(limit_paths(folder), graphs[:1], graphs)
    return captioner


def check_digests(folder: Path, settings: Settings) -> None:
    """Checks that the files of an export are those that it was written with.

    Raises:
        ValueError: One is another.
    """
    for path in (*settings.files(folder).values(), folder / VOCABULARY):
        if sha256_of(path) != settings.digests[path.name]:
            raise ValueError(
                f"{path} is not the file that this export was written with. Copy the whole "
                "folder, or export it again."
            )


def limits_files(folder: Path, limits: Limits) -> dict[Path, bytes]:
    """Returns the files that keep a captioner's limits beside the graphs of its export."""
    graphs = _digests(read_settings(folder))
    return {folder / name: kept for name, kept in limits.files(graphs[:1], graphs).items()}


def _digests(settings: Settings) -> list[str]:
    return [settings.digests[name] for name in (settings.encoder, START, STEP)]
