"""Reading of weights that were rounded to 8 or 10 bits, and of graphs of them; see `packing`.

Nothing in such a file can be executed, and NumPy reads it alone. A published captioner keeps its
weights once, as integers with scales. A template holds the rest of a graph's file: operations,
biases, scales and small constants. In both forms the largest weight of a channel is the largest
integer. So a weight of integer n in a group with scale s, in a channel with scales up to m, is
`n s / m` in the graph.
"""

from __future__ import annotations

import io
import json
import math
import re
import struct
import zipfile
import zlib
from typing import NamedTuple

import numpy as np

GROUP = 128
"""Weights of a column that share a scale."""
SCALE, LOW = ":scale", ":low2"
"""Suffixes of names: the scales, and the lower 2 of 10 bits."""
REST, SIZE, ROWS = "rest", "size", "r"
"""Of a packed graph: its other parts, the bytes of all; weights with a row for each output."""
PARTS, SIGNS, AT, BY = "parts", "signs", "fixed_at", "fixed_by"
"""Of a template: places of the weights, signs, and integers to correct, by how much."""
SHIFTS = np.array([6, 4, 2, 0], np.uint8)
"""Of the four numbers in a byte."""

_DIGITS = np.ascontiguousarray(np.arange(256, dtype=np.uint8)[:, None] >> SHIFTS & 3)
_DIGITS = _DIGITS.view(np.uint32).ravel()  # the four numbers in each byte
_ZIP_HEADER = 30  # bytes before the name of an entry; the last four are the lengths that follow
_HEADER = re.compile(  # as NumPy writes it
    rb"\x93NUMPY\x01\0..\{'descr': '(\|[iu]1|<f[24])', 'fortran_order': False, "
    rb"'shape': \(([\d, ]*)\), \} *\n",
    re.DOTALL,
)
# Weights hardly compress, and a small archive can unpack to any size.
_RATIO, _LEAST_ROOM = 16, 2**24
_BLOCK = 64  # rows: turned at once, 27 MB take three times as long


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
        self.names = [name for name in self._entries if not name.endswith((SCALE, LOW))]

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
        array, scale = by_channel(np.atleast_2d(self.entry(name))), self.entry(name + SCALE)
        if scale.shape != (math.ceil(len(array) / GROUP), array.shape[1]):
            raise _damaged(f"{name}, scales of shape {list(scale.shape)}")
        if name + LOW not in self._entries:
            return array, scale.astype(np.float32), 127
        low = self.entry(name + LOW)
        if low.dtype != np.uint8 or low.size != -(-array.size // 4):
            raise _damaged(f"{name}, lower bits of another size")
        return joined(array, low), scale.astype(np.float32), 511

    def array(self, name: str) -> np.ndarray:
        """Reads an array, float32."""
        stored = self.entry(name)
        if name + SCALE not in self._entries:
            return stored.astype(np.float32)
        levels, scale, _ = self.levels(name)
        return (levels * np.repeat(scale, GROUP, axis=0)[: len(levels)]).reshape(stored.shape)


def unpack(content: bytes) -> dict[str, np.ndarray]:
    """Returns the arrays of `pack` as float32; see `Packed`."""
    packed = Packed(content)
    return {name: packed.array(name) for name in packed.names}


def unpack_graph(content: bytes) -> bytes:
    """Returns the LiteRT graph that `pack_graph` packed.

    Raises:
        ValueError: The content is not such an archive.
    """
    packed = Packed(content)
    rest, graph, taken = packed.entry(REST).tobytes(), bytearray(), 0
    for start, name in sorted((int(n[:-1]), n) for n in packed.names if n[:-1].isdecimal()):
        weights = packed.array(name)
        weights = weights.T if name.endswith(ROWS) else weights
        before = start - len(graph)
        graph += rest[taken : taken + before] + weights.astype("<f4").tobytes()
        taken += before
    graph += rest[taken:]
    if len(graph) != int.from_bytes(packed.entry(SIZE).tobytes(), "little"):
        raise _damaged("the graph has another size")
    return bytes(graph)


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
        parts = [Part(*values) for values in json.loads(stored.entry(PARTS).tobytes())]
        rest, signs, file, place = stored.entry(REST), stored.entry(SIGNS), io.BytesIO(), 0
        at, by, fixed = stored.entry(AT).view("<u4"), stored.entry(BY), 0
        for part in parts:
            file.write(rest[place : place + part.before])
            levels, fixes = graph_levels(weights, part, signs), slice(fixed, fixed + part.fixes)
            levels.reshape(-1)[at[fixes]] += by[fixes]
            file.write(levels)
            place, fixed = place + part.before, fixed + part.fixes
        file.write(rest[place:])
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"The template of a graph is damaged: {error!r}.") from error
    return file.getvalue()


def graph_levels(weights: Packed, part: Part, signs: np.ndarray) -> np.ndarray:
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


def joined(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Returns integers of 10 bits, int16, of their upper 8 bits and `_quadruples` of the lower."""
    levels = np.multiply(high, 4, dtype=np.int16)
    levels += _DIGITS[low].view(np.uint8)[: high.size].reshape(high.shape)
    return levels


def by_channel(array: np.ndarray) -> np.ndarray:
    """Returns weights as a matrix with a column for each output channel."""
    depthwise = array.ndim == 4 and array.shape[-1] == 1
    return array.reshape(-1, array.shape[-2 if depthwise else -1])


def _damaged(why: object) -> ValueError:
    return ValueError(f"The weights are damaged: {why}.")
