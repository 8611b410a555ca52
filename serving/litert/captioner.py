"""A captioner on LiteRT: three graphs, and the loop between them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from sat_tf.captions import Caption
from sat_tf.errors import invalid_value
from sat_tf.vocabulary import END, Vocabulary
from serving.litert import folder as files
from serving.litert.beam_search import Hypothesis, beam_search
from serving.litert.consensus import rank_by_consensus
from serving.litert.image_reader import read_pixels

_STATE, _ATTENTION = ("hidden", "memory"), ("alpha", "beta")

# (inputs by name) -> outputs by name
Graph = Callable[..., dict[str, np.ndarray]]


class LiteRTCaptioner:
    """A captioner from a folder that `python -m serving.export --format litert` wrote.

    The encoder turns pixels into annotations; the start graph turns these into the LSTM's first
    state and the memory that every step reads; the step takes the last word of K hypotheses to the
    log-probabilities of the next. An instance must not be used by two threads at once.

    Args:
        folder: The export.
        threads: Threads of LiteRT.

    Raises:
        ValueError: The folder is no LiteRT export, one of another format, or not whole.
        ImportError: LiteRT is not installed.
    """

    def __init__(self, folder: str | Path, threads: int = 1) -> None:
        if threads < 1:
            raise invalid_value("threads", "at least 1", threads)
        folder = Path(folder)
        self.settings = files.read_settings(folder)
        self.vocabulary = Vocabulary.load(folder / files.VOCABULARY)
        self._encode, self._start, self._step = (
            _open_graph(folder / name, threads) for name in files.GRAPHS
        )

    def caption(self, image: str | Path | bytes | np.ndarray) -> Caption:
        """Captions an image.

        Args:
            image: Path of a file, its bytes, or uint8 pixels `[H, W, 3]`. A photograph is turned
                upright by its EXIF first.

        Raises:
            ValueError: The image cannot be read.
        """
        pixels = read_pixels(image, self.settings.image_size, self.settings.resize)
        return self.describe(pixels)

    def describe(self, pixels: np.ndarray) -> Caption:
        """Captions an image by the encoder's input, float32 `[S, S, 3]`, 0 to 255."""
        settings = self.settings
        found = beam_search(
            self._prepare_step(pixels),
            settings.beam,
            settings.max_length,
            settings.length_power,
            settings.forbidden,
        )
        if settings.consensus:
            found = rank_by_consensus(found, settings.length_power, settings.consensus)
        if not found:
            raise ValueError(
                "The image has no caption: every word's probability is 0 or not known."
            )
        return self._read(found)

    def _prepare_step(self, pixels: np.ndarray):
        """Returns the step of `beam_search` for one image."""
        encoded = self._encode(pixels=pixels[np.newaxis])
        started = self._start(**encoded)
        # All hypotheses begin with the same state, and read the same memory.
        state = {name: np.repeat(started.pop(name), self.settings.beam, axis=0) for name in _STATE}
        memory = encoded | started

        def step(tokens: np.ndarray, parents: list[int]):
            inputs = {name: part[parents] for name, part in state.items()}
            outputs = self._step(words=tokens, **inputs, **memory)
            state.update((name, outputs[name]) for name in _STATE)
            return outputs["log_probs"], [outputs[name] for name in _ATTENTION if name in outputs]

        return step

    def _read(self, found: list[Hypothesis]) -> Caption:
        best, power = found[0], self.settings.length_power
        length = best.length
        alpha = beta = None
        if self.settings.grid is not None:
            alpha, beta = (np.stack(part) for part in zip(*best.auxiliary[:length], strict=True))
            alpha = alpha.reshape(length, *self.settings.grid)
        return Caption(
            text=self.vocabulary.decode(best.tokens),
            words=tuple(self.vocabulary.words[token] for token in best.tokens if token != END),
            score=float(best.score(power)),
            log_prob=float(best.totals[-1]),
            log_probs=np.diff(best.totals[:length], prepend=np.float32(0.0)),
            alpha=alpha,
            beta=beta,
            alternatives=tuple(
                (self.vocabulary.decode(other.tokens), float(other.score(power)))
                for other in found[1:]
            ),
        )


def load(folder: str | Path, threads: int = 1) -> LiteRTCaptioner:
    """Loads a LiteRT export; see `LiteRTCaptioner`."""
    return LiteRTCaptioner(folder, threads)


def _open_graph(path: Path, threads: int) -> Graph:
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise ImportError("LiteRT is not installed: `pip install ai-edge-litert`.") from error
    try:
        return Interpreter(str(path), num_threads=threads).get_signature_runner()
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"{path} cannot be read by LiteRT: {error}. Export it again.") from error
