"""Arrays rounded to 8 or 10 bits: a compressed `.npz` of integers with scales; and graphs of them.

Nothing in such a file can be executed. NumPy reads and writes it alone; taking a LiteRT graph apart
needs LiteRT. A packed graph, which `serving/web/litert.js` unpacks, takes a quarter of its bytes:
weights that were rounded before give the same integers again, and come back to the last bits; the
rest stays as it is.

A published captioner keeps its weights once, as these integers. A template holds the rest of a
graph's file: operations, biases, scales and small constants. In both forms the largest weight of a
channel is the largest integer. So a weight of integer n in a group with scale s, in a channel with
scales up to m, is `n s / m` in the graph.
"""

from __future__ import annotations

import io
import json
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sat_tf.util.errors import invalid_value

GROUP = 128
"""Weights of a column that share a scale."""
BITS = (8, 10)
"""Sizes of a rounded weight."""

_SCALE, _LOW = ":scale", ":low2"  # suffixes: the scales, and the lower 2 of 10 bits
_SHIFTS = np.array([6, 4, 2, 0], np.uint8)
_DIGITS = np.ascontiguousarray(np.arange(256, dtype=np.uint8)[:, None] >> _SHIFTS & 3)
_DIGITS = _DIGITS.view(np.uint32).ravel()  # the four numbers in a byte
_ZIP_HEADER = 30  # bytes before the name of an entry; the last four are the lengths that follow
_HEADER = re.compile(  # as NumPy writes it
    rb"\x93NUMPY\x01\0..\{'descr': '(\|[iu]1|<f[24])', 'fortran_order': False, "
    rb"'shape': \(([\d, ]*)\), \} *\n",
    re.DOTALL,
)
# Weights hardly compress, and a small archive can unpack to any size.
_RATIO, _LEAST_ROOM = 16, 2**24

# Of a graph: what is no weight, and the bytes of all; which axis of a weight is the output's.
_REST, _SIZE = "rest", "size"
_ROWS, _COLUMNS = "r", "c"
_SMALLEST = 1024  # numbers; smaller constants stay as they are
_TOLERANCE = 1e-6  # of the largest weight


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


class Packed:
    """The arrays of `pack` or `archive`, each read when it is asked for.

    Args:
        content: The file, of any origin.

    Raises:
        ValueError: It is not such an archive, or an array is damaged or has objects in it.
    """

    def __init__(self, content: bytes) -> None:
        self._content = memoryview(content)
        try:
            entries = zipfile.ZipFile(io.BytesIO(content)).infolist()
        except Exception as error:  # the reader raises almost anything on crafted files
            raise _damaged(error) from error
        if sum(entry.file_size for entry in entries) > (
            most := _LEAST_ROOM + _RATIO * len(content)
        ):
            raise _damaged(f"it unpacks to more than {most:,} bytes")
        self._entries = {entry.filename.removesuffix(".npy"): entry for entry in entries}
        self.names = [name for name in self._entries if not name.endswith((_SCALE, _LOW))]

    def entry(self, name: str) -> np.ndarray:
        """Reads an entry as it is stored."""
        try:
            stored = self._entries[name]
            place = stored.header_offset + _ZIP_HEADER
            place += sum(struct.unpack("<HH", self._content[place - 4 : place]))
            content = self._content[place : place + stored.compress_size]
            if stored.compress_type != zipfile.ZIP_STORED:
                # `ZipFile.read` takes half as long again.
                unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
                content = unpacker.decompress(content, stored.file_size)
            kind, sides = (header := _HEADER.match(content)).groups()
            shape = [int(side) for side in sides.split(b",") if side.strip()]
            return np.frombuffer(content, kind.decode(), offset=header.end()).reshape(shape)
        except Exception as error:
            raise _damaged(f"{name}, {error!r}") from error

    def levels(self, name: str) -> tuple[np.ndarray, np.ndarray, int]:
        """Reads a rounded array.

        Returns:
            Its integers `[R, C]`, a column for each output channel; float32 `[ceil(R / GROUP), C]`,
            the scales; the largest integer of its size.
        """
        array, scale = _columns(np.atleast_2d(self.entry(name))), self.entry(name + _SCALE)
        if scale.shape != (math.ceil(len(array) / GROUP), array.shape[1]):
            raise _damaged(f"{name}, scales of shape {list(scale.shape)}")
        if name + _LOW not in self._entries:
            return array, scale.astype(np.float32), 127
        low = self.entry(name + _LOW)
        if low.dtype != np.uint8 or low.size != -(-array.size // 4):
            raise _damaged(f"{name}, lower bits of another size")
        return _joined(array, low), scale.astype(np.float32), 511

    def array(self, name: str) -> np.ndarray:
        """Reads an array, float32."""
        stored = self.entry(name)
        if name + _SCALE not in self._entries:
            return stored.astype(np.float32)
        levels, scale, _ = self.levels(name)
        return (levels * np.repeat(scale, GROUP, axis=0)[: len(levels)]).reshape(stored.shape)


def unpack(content: bytes) -> dict[str, np.ndarray]:
    """Returns the arrays of `pack` as float32; see `Packed`."""
    packed = Packed(content)
    return {name: packed.array(name) for name in packed.names}


def _damaged(why: object) -> ValueError:
    return ValueError(f"The weights are damaged: {why}.")


def _rounded(
    name: str, array: np.ndarray, bits: int, scales: type = np.float16
) -> dict[str, np.ndarray]:
    """Returns the entries of an array in so many bits, with scales of this type; see `pack`."""
    most = 2 ** (bits - 1) - 1
    columns = _columns(array)
    peaks = np.maximum.reduceat(np.abs(columns), np.arange(0, len(columns), GROUP))
    if scales == np.float16 and np.any((peaks > 0) & (peaks / most < np.finfo(scales).tiny)):
        scales = np.float32  # a subnormal scale would be felt more than the rounding of a weight
    scale = np.maximum(peaks / most, np.finfo(scales).smallest_subnormal).astype(scales)
    spread = np.repeat(scale.astype(np.float32), GROUP, axis=0)[: len(columns)]
    levels = np.clip(np.round(columns / spread), -most, most).astype(np.int16)
    levels = levels.reshape(array.shape)
    entries = {}
    if bits > 8:
        entries[name + _LOW] = _quadruples(levels & 3)
        levels >>= 2
    return entries | {name: levels.astype(np.int8), name + _SCALE: scale}


def _joined(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Returns integers of 10 bits, int16, of their upper 8 bits and `_quadruples` of the lower."""
    levels = np.multiply(high, 4, dtype=np.int16)
    levels += _DIGITS[low].view(np.uint8)[: high.size].reshape(high.shape)
    return levels


def _quadruples(digits: np.ndarray) -> np.ndarray:
    """Returns numbers below 4 as bytes, four in each, the first in the highest bits."""
    flat = digits.ravel().astype(np.uint8)
    flat = np.pad(flat, (0, -len(flat) % 4)).reshape(-1, 4)
    return np.bitwise_or.reduce(flat << _SHIFTS, axis=1)


def _columns(array: np.ndarray) -> np.ndarray:
    """Returns weights as a matrix with a column for each output channel."""
    depthwise = array.ndim == 4 and array.shape[-1] == 1
    return array.reshape(-1, array.shape[-2 if depthwise else -1])


# --- graphs ---


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
    entries[_REST] = np.frombuffer(b"".join(rest), np.uint8)
    entries[_SIZE] = np.frombuffer(len(content).to_bytes(8, "little"), np.uint8)
    return archive(entries)


def unpack_graph(content: bytes) -> bytes:
    """Returns the LiteRT graph that `pack_graph` packed.

    Raises:
        ValueError: The content is not such an archive.
    """
    packed = Packed(content)
    rest, graph, taken = packed.entry(_REST).tobytes(), bytearray(), 0
    for start, name in sorted((int(n[:-1]), n) for n in packed.names if n[:-1].isdecimal()):
        weights = packed.array(name)
        weights = weights.T if name.endswith(_ROWS) else weights
        before = start - len(graph)
        graph += rest[taken : taken + before] + weights.astype("<f4").tobytes()
        taken += before
    graph += rest[taken:]
    if len(graph) != int.from_bytes(packed.entry(_SIZE).tobytes(), "little"):
        raise _damaged("the graph has another size")
    return bytes(graph)


def _packed(values: np.ndarray) -> tuple[str, dict[str, np.ndarray]] | None:
    """Returns layout and entries that give weights back; None if none do."""
    layouts = {
        _ROWS: values.reshape(len(values), -1).T,
        _COLUMNS: values.reshape(-1, values.shape[-1]),
    }
    for bits in BITS:
        for layout, matrix in layouts.items():
            entries = _rounded("", matrix, bits, np.float32)
            levels, scale = entries[""], entries[_SCALE]
            if _LOW in entries:
                levels = _joined(levels, entries[_LOW])
            found = levels.astype(np.float32) * np.repeat(scale, GROUP, axis=0)[: len(levels)]
            if np.abs(found - matrix).max() <= _TOLERANCE * np.abs(matrix).max():
                return layout, entries
    return None


# --- templates ---

_PARTS, _SIGNS, _AT, _BY = "parts", "signs", "fixed_at", "fixed_by"
_BLOCK = 64  # rows: turned at once, 27 MB take three times as long
_EQUAL = 0.999  # share of equal integers, at least; the others differ by one


class Part(NamedTuple):
    """Place of an array of the stored weights in a graph.

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
    if not part.columns:
        return made
    turned = np.empty(made.shape[::-1], np.int8)
    for start in range(0, len(made), _BLOCK):
        turned[:, start : start + _BLOCK] = made[start : start + _BLOCK].T
    return turned


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
            _PARTS: np.frombuffer(json.dumps(parts).encode(), np.uint8),
            _REST: np.frombuffer(b"".join(rest), np.uint8),
            _SIGNS: np.concatenate([*signs, np.zeros(0, np.int8)]).astype(np.int8),
            _AT: np.concatenate([*at, np.zeros(0, np.uint8)]),
            _BY: np.concatenate([*by, np.zeros(0, np.int8)]),
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
            made = _levels(weights, part, np.zeros(0, np.int8))
            given = values.reshape(made.shape)
            products = (made.astype(np.int32) * given).sum(axis=int(columns), keepdims=True)
            flips = np.where(products < 0, -1, 1).astype(np.int8)
            apart = given - (made * flips).astype(np.int16)
            if np.abs(apart).max() <= 1 and np.mean(apart == 0) >= _EQUAL:
                part = part._replace(signs=place if (flips < 0).any() else None)
                return part, flips.ravel(), apart.ravel()
    return None
