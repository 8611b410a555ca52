"""Graphs that are open in LiteRT, called by the names of their tensors."""

from __future__ import annotations

import ctypes
import math
import mmap
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

STATE = ("hidden", "memory")
"""Names of the LSTM's state, h and c, in the graphs."""

_MOST_BYTES = 2**32  # of all tensors of a graph


class Graph:
    """A graph: inputs by name to outputs by name. One thread at a time.

    Args:
        path: Its file, with one signature.
        threads: Threads of LiteRT.

    Attributes:
        inputs: Shapes of the inputs.
        outputs: Shapes of the outputs.

    Raises:
        ImportError: LiteRT is not installed.
        ValueError: The file cannot be read.
    """

    def __init__(self, path: Path, threads: int) -> None:
        try:
            from ai_edge_litert.interpreter import Interpreter
        except ImportError as error:
            raise ImportError("LiteRT is not installed: `pip install ai-edge-litert`.") from error
        try:
            self._interpreter = Interpreter(str(path), num_threads=threads)
            tensors = self._interpreter.get_tensor_details()
            if 4 * sum(math.prod(map(int, t["shape"])) for t in tensors) > _MOST_BYTES:
                raise ValueError(f"it takes more than {_MOST_BYTES:,} bytes of memory")
            self._interpreter.allocate_tensors()
            _give_back_pages(path)
            signature = self._interpreter.get_signature_runner()
        except (ValueError, RuntimeError) as error:
            why = f"{path} cannot be read by LiteRT: {error}. Export it again."
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
        self._graph = Graph(path, threads)
        self.pixels, self.shapes = self._graph.inputs.get("pixels"), self._graph.outputs
        if len(self.shapes.get("annotations", ())) != 3:
            raise ValueError(
                f"{path} is not the graph of an encoder: its outputs are {self.shapes}."
            )
        self._turn = threading.Lock()
        self._kept: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []

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
