"""LiteRT graphs of published captioners, put together from their stored weights without TensorFlow.

A published captioner keeps its weights once, as the integers of `sat_tf.inference.packing`. A
template holds the rest of a graph's file: operations, biases, scales and small constants. In both
forms the largest weight of a channel is the largest integer. So a weight of integer n in a group
with scale s, in a channel with scales up to m, is `n s / m` in the graph.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sat_tf.inference.packing import GROUP, Packed, archive

_REST, _PARTS, _SIGNS = "rest", "parts", "signs"
_AT, _BY = "fixed_at", "fixed_by"
_SMALLEST = 1024  # numbers; smaller constants stay in the template
_EQUAL = 0.999  # share of equal integers, at least; the others differ by one


class Part(NamedTuple):
    """Where an array of the stored weights is in a graph.

    Attributes:
        name: The array.
        before: Bytes of the template before it.
        columns: The graph has a row for each output channel, not a column.
        single: The graph has one scale for the array, not one per output channel.
        signs: Place of the channels' signs, which a folded normalisation may flip; None without.
        fixes: Integers that are corrected by one.
    """

    name: str
    before: int
    columns: bool
    single: bool
    signs: int | None
    fixes: int


def assemble(template: bytes, weights: Packed) -> bytes:
    """Returns the graph of a template, with its weights.

    Raises:
        ValueError: The template is damaged, or one of other weights.
    """
    stored = Packed(template)
    try:
        parts = [Part(*values) for values in json.loads(stored.entry(_PARTS).tobytes())]
        rest, signs, file, place = stored.entry(_REST), stored.entry(_SIGNS), io.BytesIO(), 0
        at, by, fixed = stored.entry(_AT).view("<u4"), stored.entry(_BY), 0
        for part in parts:
            file.write(rest[place : place + part.before])
            levels, fixes = _levels(weights, part, signs), slice(fixed, fixed + part.fixes)
            levels.reshape(-1)[at[fixes]] += by[fixes]
            file.write(levels)
            place, fixed = place + part.before, fixed + part.fixes
        file.write(rest[place:])
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"The template of a graph is damaged: {error!r}.") from error
    return file.getvalue()


def _levels(weights: Packed, part: Part, signs: np.ndarray) -> np.ndarray:
    """Returns the integers of an array as a graph has them, int8."""
    matrix, scale, most = weights.levels(part.name)
    share = scale / (scale.max() if part.single else scale.max(axis=0)) * np.float32(127 / most)
    if part.signs is not None:
        share *= signs[part.signs :][: scale.shape[1]]
    made, buffer = np.empty(matrix.shape, np.int8), np.empty([GROUP, matrix.shape[1]], np.float32)
    for group, start in enumerate(range(0, len(matrix), GROUP)):
        rows = matrix[start : start + GROUP]
        found = np.multiply(rows, share[group], out=buffer[: len(rows)])
        made[start : start + GROUP] = np.rint(found, out=found)
    return np.ascontiguousarray(made.T) if part.columns else made


def make_template(graph: bytes, weights: Packed) -> bytes:
    """Takes the stored weights out of a graph: what `assemble` puts together again.

    Constants that are not among the weights stay. Where two ways of rounding meet half an integer,
    one of the graph is noted: a few by one move captions, as what follows is rounded, too.

    Args:
        graph: Content of the file, with weights in int8.
        weights: The captioner's weights as they are published.
    """
    parts, rest, signs, at, by, end = [], [], [], [], [], 0
    for start, values, single in sorted(_constants(graph), key=lambda found: found[0]):
        found = _part_of(values, single, weights, sum(map(len, signs)))
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
            _PARTS: np.frombuffer(json.dumps(parts).encode(), np.uint8),
            _REST: np.frombuffer(b"".join(rest), np.uint8),
            _SIGNS: np.concatenate([*signs, np.zeros(0, np.int8)]).astype(np.int8),
            _AT: np.concatenate([*at, np.zeros(0, np.uint8)]),
            _BY: np.concatenate([*by, np.zeros(0, np.int8)]),
        }
    )


def _constants(graph: bytes) -> Iterator[tuple[int, np.ndarray, bool]]:
    """Yields place and values of each large int8 constant, and whether it has one scale."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.Model.GetRootAs(graph)
    origin = np.frombuffer(graph, np.uint8).__array_interface__["data"][0]
    subgraph = model.Subgraphs(0)
    for n in range(subgraph.TensorsLength()):
        tensor = subgraph.Tensors(n)
        data = model.Buffers(tensor.Buffer()).DataAsNumpy()
        if tensor.Type() != schema.TensorType.INT8 or np.size(data) < _SMALLEST:
            continue
        start = data.__array_interface__["data"][0] - origin
        shape = tensor.ShapeAsNumpy()
        yield start, data.view(np.int8).reshape(shape), tensor.Quantization().ScaleLength() == 1


def _part_of(
    values: np.ndarray, single: bool, weights: Packed, place: int
) -> tuple[Part, np.ndarray, np.ndarray] | None:
    """Finds the array that a graph's constant is.

    Returns:
        The array, the signs of its channels, and what the constant's integers are more.
    """
    for name, shape in weights.shapes.items():
        if np.prod(shape) != values.size or len(shape) < 2:
            continue
        for columns in (True, False):
            part = Part(name, 0, columns, single, None, 0)
            made = _levels(weights, part, np.zeros(0, np.int8))
            channels = made.reshape(
                len(made) if columns else -1, *([-1] if columns else [made.shape[1]])
            )
            given = values.reshape(channels.shape)
            axis = 1 if columns else 0
            products = (channels.astype(np.int32) * given).sum(axis=axis)
            flips = np.where(products < 0, -1, 1).astype(np.int8)
            channels = channels * (flips[:, None] if columns else flips)
            apart = given - channels.astype(np.int16)
            if np.abs(apart).max() <= 1 and np.mean(apart == 0) >= _EQUAL:
                flipped = (flips < 0).any()
                part = part._replace(signs=place if flipped else None)
                return part, flips, apart.reshape(-1)
    return None
