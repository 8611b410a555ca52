"""Graphs that are open in LiteRT, called by tensor name."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

STATE = ("hidden", "memory")
"""Names of the LSTM's state, h and c, in the graphs."""

_MOST_BYTES = 2**32  # of all tensors of a graph


@contextlib.contextmanager
def without_native_log() -> Iterator[None]:
    """Discards what native code writes to standard error: LiteRT's log has no switch."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


class Graph:
    """A graph: inputs by name to outputs by name. One thread at a time.

    Args:
        graph: Its file, with one signature, or the file's content.
        threads: Threads of LiteRT.

    Attributes:
        inputs: Shapes of the inputs.
        outputs: Shapes of the outputs.

    Raises:
        ImportError: LiteRT is not installed.
        ValueError: The file cannot be read.
    """

    def __init__(self, graph: Path | bytes, threads: int) -> None:
        try:
            from ai_edge_litert.interpreter import Interpreter
        except ImportError as error:
            raise ImportError("LiteRT is not installed: `pip install ai-edge-litert`.") from error
        try:
            if isinstance(graph, bytes):
                self._interpreter = Interpreter(model_content=graph, num_threads=threads)
            else:
                self._interpreter = Interpreter(str(graph), num_threads=threads)
            tensors = self._interpreter.get_tensor_details()
            if 4 * sum(math.prod(map(int, t["shape"])) for t in tensors) > _MOST_BYTES:
                raise ValueError(f"it takes more than {_MOST_BYTES:,} bytes of memory")
            with without_native_log():  # it names its delegate
                self._interpreter.allocate_tensors()
            signature = self._interpreter.get_signature_runner()
        except (ValueError, RuntimeError) as error:
            name = graph if isinstance(graph, Path) else "a graph"
            why = f"{name} cannot be read by LiteRT: {error}. Make the graphs again."
            raise ValueError(why) from error
        given, made = signature.get_input_details(), signature.get_output_details()
        self.inputs, self.outputs = _shapes(given), _shapes(made)
        self._places = {name: details["index"] for name, details in given.items()}
        self._made = {name: details["index"] for name, details in made.items()}

    def set(self, **inputs: np.ndarray) -> None:
        """Sets inputs for all calls to come."""
        for name, value in inputs.items():
            self._interpreter.set_tensor(self._places[name], value)

    def __call__(self, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        """Sets inputs, and computes the outputs."""
        self.set(**inputs)
        self._interpreter.invoke()
        return {name: self._interpreter.get_tensor(place) for name, place in self._made.items()}


class Encoder:
    """The encoder's graph. Threads take turns.

    `Encoder.of` opens an encoder once per process. The annotations of the last images are kept:
    captioners that share an encoder run it once over an image.

    Args:
        graph: See `Graph`.
        threads: Threads of LiteRT.

    Attributes:
        pixels: `(1, S, S, 3)`, the shape of its input.
        shapes: Of its outputs: of `annotations`, `(1, L, D)`.
    """

    KEPT = 4
    """Images with annotations that are kept."""

    _open: weakref.WeakValueDictionary[tuple, Encoder] = weakref.WeakValueDictionary()
    _opening = threading.Lock()

    def __init__(self, graph: Path | bytes, threads: int) -> None:
        self._graph = Graph(graph, threads)
        self.pixels, self.shapes = self._graph.inputs.get("pixels"), self._graph.outputs
        if len(self.shapes.get("annotations", ())) != 3:
            raise ValueError(f"the encoder's graph is another: its outputs are {self.shapes}.")
        self._turn = threading.Lock()
        self._kept: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []

    @classmethod
    def of(
        cls, digests: tuple[str, ...], graph: Callable[[], Path | bytes], threads: int
    ) -> Encoder:
        """Returns an encoder, as open in this process if it is.

        Args:
            digests: SHA-256 of the files that it is made of.
            graph: Returns the graph; see `Graph`.
            threads: Threads of LiteRT.
        """
        with cls._opening:
            if (encoder := cls._open.get((*digests, threads))) is None:
                encoder = cls._open[(*digests, threads)] = cls(graph(), threads)
            return encoder

    def __call__(self, pixels: np.ndarray) -> dict[str, np.ndarray]:
        """Encodes an image, float32 `[S, S, 3]`, 0 to 255; returns `annotations` `[1, L, D]`."""
        with self._turn:
            for image, annotations in self._kept:
                # A row tells most images apart.
                if np.array_equal(image[0], pixels[0]) and np.array_equal(image, pixels):
                    return dict(annotations)
            annotations = self._graph(pixels=pixels[np.newaxis])
            self._kept = [*self._kept, (pixels.copy(), annotations)][-self.KEPT :]
            return dict(annotations)


def _shapes(details: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a graph's inputs or outputs by name."""
    return {name: tuple(map(int, found["shape"])) for name, found in details.items()}
