"""Weights of a model's layers: the files that runs keep, and small ones that are published.

A run keeps float32 in HDF5. What is published is rounded to 8 or 10 bits: a compressed `.npz` of
integers with scales, which nothing executes.
"""

from __future__ import annotations

import hashlib
import io
import math
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import h5py
import keras
import numpy as np

from sat_tf.errors import RunError, invalid_value
from sat_tf.files import write_atomically

if TYPE_CHECKING:
    from sat_tf.models.base import TrainableModel

GROUP = 128
"""Weights of a column that share a scale."""

BITS = (8, 10)
"""Sizes of a rounded weight."""

_SCALE = ":scale"  # suffix of the scales' name; names of weights have no colon
_LOW = ":low2"  # suffix of the name of the lower 2 of 10 bits
_SHIFTS = np.array([6, 4, 2, 0], np.uint8)
_SMALLEST_SCALE = 2.0**-24  # float16 has nothing between it and 0
_TYPES = [np.dtype(kind) for kind in (np.int8, np.uint8, np.float16, np.float32)]
_MOST_BYTES = 2**31  # a small archive can unpack to any size


class _Weights(keras.Model):
    """The layers of a model whose weights are kept, without optimiser and running means."""

    def __init__(self, layers: Mapping[str, keras.layers.Layer]) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.built = True


class _MemoryFile(io.BytesIO):
    """Buffers the weights: HDF5 ends the process if it meets a full disk."""

    def __str__(self) -> str:
        return "memory.weights.h5"  # Keras reads the format off the end of the name


def _saved(model: TrainableModel) -> _MemoryFile:
    file = _MemoryFile()
    _Weights(model.saved_layers()).save_weights(file)
    return file


def save_weights(model: TrainableModel, path: Path) -> None:
    """Writes the weights of a model's layers, whole or not at all.

    Raises:
        RunError: They cannot be written; the file that was there is unchanged.
    """
    try:
        write_atomically(path, _saved(model).getvalue())
    except OSError as error:
        raise RunError(
            f"The weights cannot be written to {path}: {error.strerror}. The previous ones are "
            "still there: make room and start the same command again."
        ) from error


def load_weights(model: TrainableModel, path: Path) -> str:
    """Reads back what `save_weights` wrote.

    Returns:
        SHA-256 (hexadecimal) of what was read: training may replace the file at any time.

    Raises:
        RunError: The file cannot be read or does not fit the model.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error}") from error
    _load(model, _MemoryFile(content), path)
    return hashlib.sha256(content).hexdigest()


def load_compact(model: TrainableModel, paths: Sequence[Path]) -> None:
    """Gives a model the weights of `training.publish`, the arrays of all files together.

    Raises:
        RunError: A file cannot be read, or does not fit the model.
    """
    file = _MemoryFile()
    with h5py.File(file, "w") as weights:
        for path in paths:
            try:
                for name, array in unpack(path.read_bytes()).items():
                    weights[name] = array
            except (OSError, ValueError) as error:
                raise RunError(f"Cannot read {path}: {error}") from error
    _load(model, file, paths[0].parent)


def _load(model: TrainableModel, file: _MemoryFile, origin: Path) -> None:
    try:
        _Weights(model.saved_layers()).load_weights(file)
    except (OSError, ValueError, KeyError) as error:
        raise RunError(
            f"The weights in {origin} do not fit the run's configuration: {error}"
        ) from error


def weight_arrays(model: TrainableModel) -> dict[str, np.ndarray]:
    """Returns what `save_weights` writes, by its names: `encoder/...`, `decoder/...`, say."""
    arrays = {}

    def collect(name: str, entry: h5py.Group | h5py.Dataset) -> None:
        if isinstance(entry, h5py.Dataset):
            arrays[name] = np.asarray(entry, np.float32)

    with h5py.File(_saved(model)) as file:
        file.visititems(collect)
    return arrays


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
    most = 2 ** (bits - 1) - 1
    packed = {}
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise invalid_value("arrays", "finite weights", f"others in {name}")
        if array.ndim < 2:
            packed[name] = array
            continue
        columns = _columns(array)
        peaks = np.maximum.reduceat(np.abs(columns), np.arange(0, len(columns), GROUP))
        scale = np.maximum(peaks / most, _SMALLEST_SCALE).astype(np.float16)
        levels = np.clip(np.round(columns / _spread(scale, len(columns))), -most, most)
        levels = levels.astype(np.int16).reshape(array.shape)
        if bits > 8:
            packed[name + _LOW] = _quadruples(levels & 3)
            levels >>= 2
        packed[name] = levels.astype(np.int8)
        packed[name + _SCALE] = scale
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **packed)
    return file.getvalue()


def unpack(content: bytes) -> dict[str, np.ndarray]:
    """Returns the arrays of `pack` as float32.

    Raises:
        ValueError: The content is no such archive, or one with objects in it.
    """
    try:
        packed = _read(content)
        return {
            name: _restored(array, packed.get(name + _SCALE), packed.get(name + _LOW))
            for name, array in packed.items()
            if not name.endswith((_SCALE, _LOW))
        }
    except Exception as error:  # the readers raise almost anything on crafted files
        raise ValueError(f"The weights are damaged: {error}.") from error


def _read(content: bytes) -> dict[str, np.ndarray]:
    """Reads an archive, in which each array is as large as its header says."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        if sum(entry.file_size for entry in entries) > _MOST_BYTES:
            raise ValueError(f"it unpacks to more than {_MOST_BYTES:,} bytes")
        for entry in entries:
            with archive.open(entry) as file:
                _check_header(file, entry.file_size)
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _check_header(file: IO[bytes], size: int) -> None:
    """Checks the header of an array, before NumPy makes room for what it says."""
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array has another format")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype not in _TYPES:
        raise ValueError(f"an array is of type {dtype}")
    if min(shape, default=0) < 0 or file.tell() + math.prod(shape) * dtype.itemsize != size:
        raise ValueError(f"an array of shape {list(shape)} has another size")


def _columns(array: np.ndarray) -> np.ndarray:
    """Returns weights as a matrix with a column for each output channel."""
    depthwise = array.ndim == 4 and array.shape[-1] == 1
    return array.reshape(-1, array.shape[-2 if depthwise else -1])


def _spread(scale: np.ndarray, count: int) -> np.ndarray:
    """Repeats the scales of groups for each of `count` rows, float32."""
    return np.repeat(scale.astype(np.float32), GROUP, axis=0)[:count]


def _quadruples(digits: np.ndarray) -> np.ndarray:
    """Returns numbers below 4 as bytes, four in each, the first in the highest bits."""
    flat = digits.ravel().astype(np.uint8)
    flat = np.pad(flat, (0, -len(flat) % 4)).reshape(-1, 4)
    return np.bitwise_or.reduce(flat << _SHIFTS, axis=1)


def _restored(array: np.ndarray, scale: np.ndarray | None, low: np.ndarray | None) -> np.ndarray:
    if scale is None:
        return array.astype(np.float32)
    columns = _columns(array).astype(np.float32)
    if scale.shape != (math.ceil(len(columns) / GROUP), columns.shape[1]):
        raise ValueError(f"scales of shape {list(scale.shape)} do not fit {list(array.shape)}")
    if low is not None:
        digits = (low[:, None] >> _SHIFTS & 3).ravel()[: array.size]
        columns = columns * 4 + digits.reshape(columns.shape)
    return (columns * _spread(scale, len(columns))).reshape(array.shape)
