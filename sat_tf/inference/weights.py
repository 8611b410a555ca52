"""Weights of a model's layers: the files that runs keep, and small ones that are published.

A run keeps float32 in HDF5. Published weights are rounded to 8 or 10 bits, see `packing`.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import keras
import numpy as np

from sat_tf.inference.unpacking import unpack
from sat_tf.util.errors import RunError
from sat_tf.util.files import write_atomically

if TYPE_CHECKING:
    from sat_tf.train_step import TrainableModel


class _Weights(keras.Model):
    """The layers of a model to keep, without optimiser and running means."""

    def __init__(self, layers: Mapping[str, keras.layers.Layer]) -> None:
        super().__init__(name="weights")  # written into the file: equal weights, equal bytes
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
        SHA-256 (hexadecimal) of the bytes read: training may replace the file at any time.

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
            except (OSError, ValueError, TypeError) as error:
                raise RunError(f"Cannot read {path}: {error}") from error
    _load(model, file, paths[0].parent)


def _load(model: TrainableModel, file: _MemoryFile, origin: Path) -> None:
    try:
        with h5py.File(file) as arrays:
            if names := _led_elsewhere(arrays):
                raise ValueError(f"{names[0]} is a link, not an array of this file")
        file.seek(0)
        _Weights(model.saved_layers()).load_weights(file)
    except (OSError, ValueError, KeyError) as error:
        raise RunError(
            f"The weights in {origin} do not fit the run's configuration: {error}"
        ) from error


def _led_elsewhere(arrays: h5py.File) -> list[str]:
    """Returns the names in a file that stand for something outside it, or for another name.

    The file may come from anybody, such a name can lead to any file that the user can read, and the
    oldest versions of Keras that are allowed follow it there.
    """
    found: list[str] = []

    def collect_link(name: str, link: object) -> None:
        if not isinstance(link, h5py.HardLink):
            found.append(name)

    def collect(name: str, entry: h5py.Group | h5py.Dataset) -> None:
        if isinstance(entry, h5py.Dataset) and (entry.external or entry.is_virtual):
            found.append(name)

    arrays.visititems_links(collect_link)
    arrays.visititems(collect)
    return found


def weight_arrays(model: TrainableModel) -> dict[str, np.ndarray]:
    """Returns the arrays that `save_weights` writes by name, such as `encoder/...`."""
    arrays = {}

    def collect(name: str, entry: h5py.Group | h5py.Dataset) -> None:
        if isinstance(entry, h5py.Dataset):
            arrays[name] = np.asarray(entry, np.float32)

    with h5py.File(_saved(model)) as file:
        file.visititems(collect)
    return arrays
