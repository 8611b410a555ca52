"""Graphs in a quarter of their bytes: weights that `sat_tf.packing` rounded are rounded again.

Integers and scales give the same weights back, to the last bits, so the captions are the same.
What does not come back stays as it is.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sat_tf import packing

_REST, _SIZE = "rest", "size"  # of the graph: what is no weight, and the bytes of all
_SMALLEST = 1024  # numbers; smaller constants stay as they are
_TOLERANCE = 1e-6  # of the largest weight


def pack_graph(path: Path) -> bytes:
    """Returns a LiteRT graph, packed."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    content = path.read_bytes()
    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES  # constants stay where they are
    interpreter = Interpreter(str(path), experimental_op_resolver_type=plain)
    interpreter.allocate_tensors()
    entries, rest, end = {}, [], 0
    for start, values in sorted(_constants(interpreter, content), key=lambda found: found[0]):
        packed = _packed(values) if start >= end else None
        if packed is None:
            continue
        layout, levels = packed
        entries |= {f"{start}{layout}{suffix}": part for suffix, part in levels.items()}
        rest.append(content[end:start])
        end = start + values.nbytes
    rest.append(content[end:])
    entries[_REST] = np.frombuffer(b"".join(rest), np.uint8)
    entries[_SIZE] = np.frombuffer(len(content).to_bytes(8, "little"), np.uint8)
    return packing.archive(entries)


def unpack_graph(packed: bytes) -> bytearray:
    """Returns a LiteRT graph from `pack_graph`.

    Raises:
        ValueError: It is damaged.
    """
    try:
        entries = packing.read(packed)
        graph = np.empty(int.from_bytes(entries.pop(_SIZE).tobytes(), "little"), np.uint8)
        rest, taken, end = entries.pop(_REST), 0, 0
        for name, values in sorted(
            packing.restored(entries).items(), key=lambda entry: int(entry[0][:-1])
        ):
            start, layout = int(name[:-1]), name[-1]
            graph[end:start] = rest[taken : taken + start - end]
            taken, end = taken + start - end, start + values.nbytes
            values = values.T if layout == _ROWS else values
            graph[start:end] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        graph[end:] = rest[taken:]
    except Exception as error:  # the readers raise almost anything on crafted files
        raise ValueError(f"The packed graph is damaged: {error}.") from error
    return graph.data


_ROWS, _COLUMNS = "r", "c"  # which of the axes is the output's


def _constants(interpreter, content: bytes):
    """Yields the place and the values of each matrix of float32 weights in a graph's file."""
    for tensor in interpreter.get_tensor_details():
        shape = tensor["shape"]
        if tensor["dtype"] != np.float32 or len(shape) < 2 or np.prod(shape) < _SMALLEST:
            continue
        try:
            values = interpreter.get_tensor(tensor["index"])
        except ValueError:  # of an activation
            continue
        start = content.find(values.tobytes())
        if start >= 0:
            yield start, values


def _packed(values: np.ndarray) -> tuple[str, dict[str, np.ndarray]] | None:
    """Returns layout and entries that give weights back; None if none do."""
    layouts = {
        _ROWS: values.reshape(len(values), -1).T,
        _COLUMNS: values.reshape(-1, values.shape[-1]),
    }
    for bits in packing.BITS:
        for layout, matrix in layouts.items():
            entries = packing.rounded("", matrix, bits, np.float32)
            error = np.abs(packing.restored(entries)[""] - matrix).max()
            if error <= _TOLERANCE * np.abs(matrix).max():
                return layout, entries
    return None
