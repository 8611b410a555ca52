"""Writing of weights rounded to 8 or 10 bits: a compressed `.npz`; graphs of them; templates.

`unpacking` reads them. Taking a LiteRT graph apart needs LiteRT. A packed graph, which
`serving/web/litert.js` unpacks, too, takes a quarter of its bytes: weights that were rounded before
give the same integers again, and come back to the last bits; the rest stays as it is.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sat_tf.inference.unpacking import (
    AT,
    BY,
    GROUP,
    LOW,
    PARTS,
    REST,
    ROWS,
    SCALE,
    SHIFTS,
    SIGNS,
    SIZE,
    Packed,
    Part,
    by_channel,
    graph_levels,
    joined,
)
from sat_tf.util.errors import invalid_value

BITS = (8, 10)
"""Sizes of a rounded weight."""

_COLUMNS = "c"  # of a packed graph: weights with a column for each output
_SMALLEST = 1024  # numbers; smaller constants stay as they are
_TOLERANCE = 1e-6  # of the largest weight
_EQUAL = 0.999  # share of equal integers of a template, at least; the others differ by one


def pack(arrays: Mapping[str, np.ndarray], bits: int = 8) -> bytes:
    """Returns arrays as an `.npz`; equal arrays give equal bytes.

    Matrices, and whatever has more axes, are rounded to integers, with a float16 scale for each
    `GROUP` weights of an output channel: the last axis, or the one before it for a depthwise
    kernel `[h, w, C, 1]`. Vectors stay as they are. Packing the weights of an 8-bit file in 8 bits
    again leaves them as they are.

    Args:
        arrays: Weights by name.
        bits: Size of an integer, one of `BITS`.

    Raises:
        ValueError: A weight is not finite, or the size is another.
    """
    if bits not in BITS:
        raise invalid_value("bits", "8 or 10", bits)
    packed = {}
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise invalid_value("arrays", "finite weights", f"others in {name}")
        packed |= {name: array} if array.ndim < 2 else _rounded(name, array, bits)
    return archive(packed)


def archive(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Returns arrays as a compressed `.npz`."""
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _rounded(
    name: str, array: np.ndarray, bits: int, scales: type = np.float16
) -> dict[str, np.ndarray]:
    """Returns the entries of an array in so many bits, with scales of this type; see `pack`."""
    most = 2 ** (bits - 1) - 1
    columns = by_channel(array)
    peaks = np.maximum.reduceat(np.abs(columns), np.arange(0, len(columns), GROUP))
    if scales == np.float16 and np.any((peaks > 0) & (peaks / most < np.finfo(scales).tiny)):
        scales = np.float32  # a subnormal scale would be felt more than the rounding of a weight
    scale = np.maximum(peaks / most, np.finfo(scales).smallest_subnormal).astype(scales)
    spread = np.repeat(scale.astype(np.float32), GROUP, axis=0)[: len(columns)]
    levels = np.clip(np.round(columns / spread), -most, most).astype(np.int16)
    levels = levels.reshape(array.shape)
    entries = {}
    if bits > 8:
        entries[name + LOW] = _quadruples(levels & 3)
        levels >>= 2
    return entries | {name: levels.astype(np.int8), name + SCALE: scale}


def _quadruples(digits: np.ndarray) -> np.ndarray:
    """Returns numbers below 4 as bytes, four in each, the first in the highest bits."""
    flat = digits.ravel().astype(np.uint8)
    flat = np.pad(flat, (0, -len(flat) % 4)).reshape(-1, 4)
    return np.bitwise_or.reduce(flat << SHIFTS, axis=1)


def pack_graph(path: Path) -> bytes:
    """Returns a LiteRT graph, packed."""
    content = path.read_bytes()
    entries, rest, end = {}, [], 0
    for start, values, _ in _constants(content, "FLOAT32"):
        packed = _packed(values) if start >= end and values.ndim > 1 else None
        if packed is None:
            continue
        layout, levels = packed
        entries |= {f"{start}{layout}{suffix}": part for suffix, part in levels.items()}
        rest.append(content[end:start])
        end = start + values.nbytes
    rest.append(content[end:])
    entries[REST] = np.frombuffer(b"".join(rest), np.uint8)
    entries[SIZE] = np.frombuffer(len(content).to_bytes(8, "little"), np.uint8)
    return archive(entries)


def _packed(values: np.ndarray) -> tuple[str, dict[str, np.ndarray]] | None:
    """Returns layout and entries that give weights back; None if none do."""
    layouts = {
        ROWS: values.reshape(len(values), -1).T,
        _COLUMNS: values.reshape(-1, values.shape[-1]),
    }
    for bits in BITS:
        for layout, matrix in layouts.items():
            entries = _rounded("", matrix, bits, np.float32)
            levels, scale = entries[""], entries[SCALE]
            if LOW in entries:
                levels = joined(levels, entries[LOW])
            found = levels.astype(np.float32) * np.repeat(scale, GROUP, axis=0)[: len(levels)]
            if np.abs(found - matrix).max() <= _TOLERANCE * np.abs(matrix).max():
                return layout, entries
    return None


def make_template(graph: bytes, weights: Packed) -> bytes:
    """Takes the stored weights out of a graph: what `assemble` puts together again.

    Constants that are not among the weights stay. Where two ways of rounding meet half an integer,
    one of the graph is noted: a few by one move captions, as what follows is rounded, too.

    Args:
        graph: Content of the file, with weights in int8.
        weights: The captioner's weights as they are published.
    """
    parts, rest, signs, at, by, end = [], [], [], [], [], 0
    shapes = {name: weights.entry(name).shape for name in weights.names}
    for start, values, single in _constants(graph, "INT8"):
        found = _part_of(values, single, weights, shapes, sum(map(len, signs)))
        if found is None:
            continue
        part, flips, apart = found
        fixed = np.flatnonzero(apart)
        at.append(fixed.astype("<u4").view(np.uint8))
        by.append(apart[fixed].astype(np.int8))
        rest.append(graph[end:start])
        parts.append(part._replace(before=start - end, fixes=len(fixed)))
        end = start + values.nbytes
        signs += [] if part.signs is None else [flips]
    rest.append(graph[end:])
    return archive(
        {
            PARTS: np.frombuffer(json.dumps(parts).encode(), np.uint8),
            REST: np.frombuffer(b"".join(rest), np.uint8),
            SIGNS: np.concatenate([*signs, np.zeros(0, np.int8)]).astype(np.int8),
            AT: np.concatenate([*at, np.zeros(0, np.uint8)]),
            BY: np.concatenate([*by, np.zeros(0, np.int8)]),
        }
    )


def _constants(graph: bytes, kind: str) -> list[tuple[int, np.ndarray, bool]]:
    """Returns place and values of each large constant, and whether it has one scale, in order."""
    from ai_edge_litert import schema_py_generated as schema

    model, found = schema.Model.GetRootAs(graph), []
    origin = np.frombuffer(graph, np.uint8).__array_interface__["data"][0]
    dtype, wanted = {"INT8": "i1", "FLOAT32": "<f4"}[kind], getattr(schema.TensorType, kind)
    for n in range(model.Subgraphs(0).TensorsLength()):
        tensor = model.Subgraphs(0).Tensors(n)
        data = model.Buffers(tensor.Buffer()).DataAsNumpy()
        if tensor.Type() != wanted or np.size(data) < _SMALLEST * np.dtype(dtype).itemsize:
            continue
        start = data.__array_interface__["data"][0] - origin
        values = data.view(dtype).reshape(tensor.ShapeAsNumpy())
        found.append((start, values, tensor.Quantization().ScaleLength() == 1))
    return sorted(found, key=lambda one: one[0])


def _part_of(
    values: np.ndarray,
    single: bool,
    weights: Packed,
    shapes: Mapping[str, tuple[int, ...]],
    place: int,
) -> tuple[Part, np.ndarray, np.ndarray] | None:
    """Finds the array that a graph's constant is.

    Returns:
        The array, the signs of its channels, and what the constant's integers are more.
    """
    for name, shape in shapes.items():
        if math.prod(shape) != values.size or len(shape) < 2:
            continue
        for columns in (True, False):
            part = Part(name, 0, columns, single, None, 0)
            made = graph_levels(weights, part, np.zeros(0, np.int8))
            given = values.reshape(made.shape)
            products = (made.astype(np.int32) * given).sum(axis=int(columns), keepdims=True)
            flips = np.where(products < 0, -1, 1).astype(np.int8)
            apart = given - (made * flips).astype(np.int16)
            if np.abs(apart).max() <= 1 and np.mean(apart == 0) >= _EQUAL:
                part = part._replace(signs=place if (flips < 0).any() else None)
                return part, flips.ravel(), apart.ravel()
    return None
