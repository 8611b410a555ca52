"""A captioner over LiteRT: three graphs and the loop between them, with NumPy and Pillow alone."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sat_tf.config import SearchConfig
from sat_tf.inference import published
from sat_tf.inference.captioning import TrainedCaptioner
from sat_tf.inference.captions import Caption, WordByWord
from sat_tf.inference.confidence import limit_files, read_limits
from sat_tf.inference.litert_graph import STATE, Encoder, Graph
from sat_tf.inference.litert_search import Found, Step, beam_search, rank_by_consensus
from sat_tf.inference.run_folder import RunFolder, data_of, read_config, read_vocabulary
from sat_tf.inference.unpacking import Packed, assemble
from sat_tf.text.vocabulary import END, PAD
from sat_tf.text.vocabulary import START as START_WORD
from sat_tf.util.errors import RunError
from sat_tf.util.fields import to_dict
from sat_tf.util.files import sha256_of

_ATTENTION = ("alpha", "beta")
_ENCODER = (published.GRAPHS[0], published.WEIGHTS["encoder"], published.TEMPLATES[0])
"""Files that an encoder is made of, one or two of them."""


class LiteRTCaptioner(TrainedCaptioner):
    """A captioner over the graphs of a published captioner, or of `RUN/graphs`.

    The encoder turns pixels into annotations; the start graph turns these into the LSTM's first
    state and what else every step reads; the step takes the last word of K hypotheses to the
    log-probabilities of the next. Threads take turns. Captioners of one process with the same
    encoder share its memory, and its work on an image that all of them caption.

    Args:
        folder: The folder with the graphs.
        run: The run that they are of, if it is known; they are held against its weights and words.
        threads: Threads of LiteRT; a step takes one. None for as many as there are cores, up to 4.

    Attributes:
        folder: The folder with the graphs.
        precision: Of the graphs' weights: `float32`, `float16` or `int8`.

    Raises:
        RunError: The folder holds no graphs, or is of another version, incomplete or damaged; or
            the graphs are of other weights or words than the run.
        ImportError: LiteRT is not installed.
    """

    def __init__(self, folder: Path, run: Path | None = None, threads: int | None = None) -> None:
        self.folder, self.path = folder, run or folder
        marker = published.read_marker(folder)
        published.checked_files(folder, [published.CONFIG, published.VOCABULARY])
        self.config, self.vocabulary = read_config(folder), read_vocabulary(folder)
        if run is not None:
            self.weights_sha256 = _checked_weights(marker, folder, RunFolder(run))
        self.precision, threads = marker.precision, threads or _cores()
        try:
            # The encoder last: nothing else takes as much memory while it is opened.
            start, step = _contents(folder, marker, "decoder")
            self._start = Graph(start, threads)
            # On two threads a step of int8 takes 65 % more processor time, and hardly less time.
            self._step = Graph(step, 1)
            self._encode = Encoder.of(
                tuple(marker.files.get(name, "") for name in _ENCODER),
                lambda: _contents(folder, marker, "encoder")[0],
                threads,
            )
        except ValueError as error:
            raise RunError(f"The graphs in {folder} cannot be used: {error}") from error
        self._rows = self._step.inputs.get("words", (0,))[0]
        self._locations = self._encode.shapes["annotations"][1]
        self.grid = marker.grid or (1, self._locations)
        self._attends = self.config.attention.kind != "none"
        self.limits = read_limits(folder)
        self._turn = threading.Lock()  # an interpreter serves one thread at a time

    @property
    def model(self):
        """Raises an error: graphs have no model."""
        raise RunError(f"{self!r} has no model: load it with `engine='keras'`.")

    def beams(
        self, pixels: Sequence[np.ndarray], search: SearchConfig, most: int | None = None
    ) -> list[list[Caption]]:
        """Captions images from the encoder's input; see `TrainedCaptioner.beams`.

        A beam wider than that of the graphs takes several runs of the step per word.
        """
        return [self._beam(image, search, most) for image in pixels]

    def _beam(self, pixels: np.ndarray, search: SearchConfig, most: int | None) -> list[Caption]:
        with self._turn:
            found = beam_search(self._steps_over(pixels), search)
        if not len(found.tokens):
            raise ValueError(
                "The image has no caption: the search bars every word, or its probability is 0 or "
                "not known."
            )
        if search.consensus:
            found = rank_by_consensus(found, search.consensus)
        seen = pixels.round().astype(np.uint8)
        best, *others = (self._read(found, k, seen) for k in range(len(found.tokens))[:most])
        # The encoder has kept the annotations.
        return [*self.limits.told([best], self.annotate(pixels[np.newaxis]), search), *others]

    def annotate(self, pixels: np.ndarray) -> np.ndarray:
        """Encodes images `[B, S, S, 3]`, the encoder's input, as annotations `[B, L, D]`."""
        return np.concatenate([self._encode(image)["annotations"] for image in pixels])

    def read_tokens(self, pixels: np.ndarray, tokens: Sequence[int]) -> WordByWord:
        """Reads the T tokens of a sentence about an image, each from the true ones before it.

        Where all annotations are their mean, any map gives the context of a uniform one. So a step
        with this mean in their place, from a state of the real maps, is a step under a uniform map.
        """
        rows, words = self._rows, np.array([START_WORD, *tokens[:-1]], np.int32)
        states, outputs = [], []
        with self._turn:
            state, attended = self._begin(pixels)
            state = {name: np.repeat(part, rows, axis=0) for name, part in state.items()}
            for word in words:
                states.append(state)
                outputs.append(self._step(words=np.full(rows, word), **state))
                state = {name: outputs[-1][name] for name in STATE}
            log_probs = [o["log_probs"][0, n] for o, n in zip(outputs, tokens, strict=True)]
            if not self._attends:
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
        rows = self._rows
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
        if self._attends:
            alpha, beta = (part[k, :length] for part in found.auxiliary)
            alpha = alpha.reshape(length, *self.grid)
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


def _checked_weights(marker: published.Marker, graphs: Path, run: RunFolder) -> str | None:
    """Returns the SHA-256 of a run's weights, which its graphs must have been made from."""
    weights = run.weights_sha256()
    words = sha256_of(run.vocabulary) if run.vocabulary.is_file() else None
    if (weights, words) != (marker.made_of, marker.files.get(published.VOCABULARY)):
        raise RunError(
            f"{graphs} is of other weights or words than the run: "
            f"`python -m serving.export_litert --run-dir {run}` makes them."
        )
    return weights


def graph_files(folder: Path) -> dict[str, bytes]:
    """Returns the content of `encoder.tflite`, `start.tflite` and `step.tflite` of a folder.

    Raises:
        RunError: As `LiteRTCaptioner`.
    """
    marker = published.read_marker(folder)
    contents = [*_contents(folder, marker, "encoder"), *_contents(folder, marker, "decoder")]
    read = (one if isinstance(one, bytes) else one.read_bytes() for one in contents)
    return dict(zip(published.GRAPHS, read, strict=True))


def _contents(folder: Path, marker: published.Marker, part: str) -> list[Path | bytes]:
    """Returns the graphs of encoder or decoder: files, or contents of the stored weights."""
    numbers = (0,) if part == "encoder" else (1, 2)
    names = [published.GRAPHS[number] for number in numbers]
    if names[0] in marker.files:
        found = published.checked_files(folder, names)
        return [found[name] for name in names]
    weights = Packed(published.checked_content(folder, published.WEIGHTS[part]))
    templates = (published.TEMPLATES[number] for number in numbers)
    return [assemble(published.checked_content(folder, name), weights) for name in templates]


def _cores() -> int:
    """Returns how many threads LiteRT takes: more than the process has cores would take turns."""
    affinity = getattr(os, "sched_getaffinity", None)
    return min(4, len(affinity(0)) if affinity else os.cpu_count() or 1)


def _joined(outputs: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([made[name] for made in outputs]) for name in outputs[0]}


def write_folder(
    folder: Path,
    captioner: TrainedCaptioner,
    graphs: Mapping[str, bytes],
    precision: str,
    search: SearchConfig | None = None,
) -> None:
    """Writes graphs with configuration, words and limits of their captioner, the marker last.

    Args:
        folder: A new folder, or one of graphs, which are replaced.
        captioner: The captioner.
        graphs: Content of its graphs, by file.
        precision: Of their weights.
        search: The default search; None for the captioner's.

    Raises:
        OSError: The disk is full; the folder then has no marker.
    """
    config = dataclasses.replace(captioner.config, search=search or captioner.config.search)
    values, words = to_dict(config), (captioner.vocabulary.to_json() + "\n").encode()
    values["encoder"]["weights"] = None  # a path of the machine
    limits: dict[str, Path] = {}
    if captioner.path is not None:
        run, limits = RunFolder(captioner.path), limit_files(captioner.path)
        words, data = run.vocabulary.read_bytes(), data_of(run.config)
        values["data"] = {key: data[key] for key in ("name", "language") if key in data}
    files = {name: path.read_bytes() for name, path in limits.items()}
    files |= {
        published.CONFIG: (json.dumps(values, indent=1) + "\n").encode(),
        published.VOCABULARY: words,
    }
    grid = captioner.grid if config.attention.kind != "none" else None
    made_of = captioner.weights_sha256
    facts = {"precision": precision, "grid": grid, "made_of": made_of}
    published.write(folder, {**graphs, **files}, **facts)


def copy_graphs(captioner: LiteRTCaptioner, folder: Path) -> None:
    """Writes the graphs of an open captioner as such a folder; see `write_folder`."""
    write_folder(folder, captioner, graph_files(captioner.folder), captioner.precision)


def renew_limits(run: RunFolder) -> None:
    """Gives the graphs of a run, if it has some, the limits that the run has learned since."""
    if published.manifest_of(run.graphs) is None:
        return
    marker, limits = published.read_marker(run.graphs), limit_files(run.path)
    files = {name: path.read_bytes() for name, path in limits.items()}
    for name in marker.files.keys() - files.keys():
        files[name] = published.checked_content(run.graphs, name)
    facts = {"precision": marker.precision, "grid": marker.grid, "made_of": marker.made_of}
    published.write(run.graphs, files, **facts)
