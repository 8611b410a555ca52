"""Loading and saving of the files in a run's folder."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import h5py
import keras
import numpy as np

from sat_tf import compact_weights, published
from sat_tf.config import SYSTEM_KEY, CaptionerConfig
from sat_tf.digits.models.digit_model import DigitModel
from sat_tf.digits.models.factory import build
from sat_tf.digits.reader import DigitReader, DigitReading
from sat_tf.digits.reader_config import read_reader_config
from sat_tf.errors import RunError, other_version
from sat_tf.fields import check_argument, from_dict
from sat_tf.files import write_atomically
from sat_tf.models.captioner import Captioner
from sat_tf.run_folder import RunFolder, read_object
from sat_tf.trained_captioner import Caption, Image, TrainedCaptioner
from sat_tf.vocabulary import Vocabulary

__all__ = [
    "Caption",
    "DigitReader",
    "DigitReading",
    "Image",
    "RunError",
    "TrainedCaptioner",
    "load",
    "load_captioner",
    "load_digits",
    "load_weights",
    "read_average",
    "read_config",
    "read_vocabulary",
    "save_weights",
    "weight_arrays",
]


def load(run_dir: str | Path) -> TrainedCaptioner | DigitReader:
    """Loads the best captioner of a run, a published captioner, or a published digit model.

    Args:
        run_dir: Folder written by `python -m training.train` or `python -m training.publish`; or
            the name of a model that ships (`sat_tf.published.names()`, `digit_names()`); or
            `hf://OWNER/NAME[@REVISION]` on the Hugging Face Hub.

    Returns:
        A `TrainedCaptioner`, which needs neither the data set nor the encoder's weights file; of a
        digit model a `DigitReader`.

    Raises:
        RunError: The folder is not a run, or its files do not fit each other.
    """
    folder = published.locate(check_argument("run_dir", run_dir, str | Path))
    return load_digits(folder) if published.is_digits(folder) else load_captioner(folder)


def load_digits(folder: Path) -> DigitReader:
    """Loads a published digit model; see `load`."""
    files, config = published.checked_files(folder), read_reader_config(folder)
    model = build(config.model, config.image_size, config.answers)
    _load_compact(model, [files[published.DIGIT_WEIGHTS]])
    return DigitReader(model, config, folder)


def load_captioner(run_dir: str | Path) -> TrainedCaptioner:
    """Loads a captioner; see `load`. A digit model is an error."""
    folder = RunFolder(published.locate(run_dir))
    is_published = published.is_published(folder.path)
    files = published.checked_files(folder.path) if is_published else {}
    config, vocabulary = read_config(folder), read_vocabulary(folder)
    if not is_published and not folder.best_weights.is_file():
        raise RunError(
            f"{folder} has no {folder.best_weights.name}: the run has not finished an epoch yet."
        )
    model = Captioner(config, len(vocabulary), load_encoder_weights=False, dtype="float32")
    if is_published:
        _load_compact(model, [files[name] for name in published.WEIGHTS.values()])
    digest = None if is_published else load_weights(model, folder.best_weights)
    return TrainedCaptioner(model, vocabulary, folder.path, digest)


def read_config(run_dir: Path | RunFolder) -> CaptionerConfig:
    """Reads the captioner's part of a run's configuration.

    Raises:
        RunError: The folder is not a captioner's run, or of another version.
    """
    path = RunFolder(run_dir).config
    values = read_object(path)
    if SYSTEM_KEY in values:
        raise published.no_captioner(Path(run_dir), values[SYSTEM_KEY])
    names = [field.name for field in fields(CaptionerConfig)]
    try:
        captioner = {name: values[name] for name in names}
        # The place of what taught attention concerns training alone.
        captioner["attention"] = {k: v for k, v in captioner["attention"].items() if k != "teacher"}
        return from_dict(CaptionerConfig, captioner)
    except KeyError as error:
        raise RunError(f"{path} is not a run's configuration: it has no {error}.") from error
    except (TypeError, AttributeError, ValueError) as error:
        raise other_version(path, error) from error


def read_vocabulary(run_dir: Path | RunFolder) -> Vocabulary:
    """Reads a run's vocabulary.

    Raises:
        RunError: It is missing or damaged.
    """
    path = RunFolder(run_dir).vocabulary
    try:
        return Vocabulary.load(path)
    except (OSError, ValueError) as error:
        raise RunError(f"Cannot read {path}: {error}") from error


def read_average(run_dir: Path | RunFolder) -> dict[str, float]:
    """Reads which runs were averaged, with their shares; empty for a run that was trained."""
    path = RunFolder(run_dir).average
    return read_object(path) if path.exists() else {}


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


def _saved(model: Captioner | DigitModel) -> _MemoryFile:
    file = _MemoryFile()
    _Weights(model.saved_layers()).save_weights(file)
    return file


def save_weights(model: Captioner | DigitModel, path: Path) -> None:
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


def load_weights(model: Captioner | DigitModel, path: Path) -> str:
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


def _load(model: Captioner | DigitModel, file: _MemoryFile, origin: Path) -> None:
    try:
        _Weights(model.saved_layers()).load_weights(file)
    except (OSError, ValueError, KeyError) as error:
        raise RunError(
            f"The weights in {origin} do not fit the run's configuration: {error}"
        ) from error


def weight_arrays(model: Captioner | DigitModel) -> dict[str, np.ndarray]:
    """Returns what `save_weights` writes, by its names: `encoder/...`, `decoder/...`, say."""
    arrays = {}

    def collect(name: str, entry: h5py.Group | h5py.Dataset) -> None:
        if isinstance(entry, h5py.Dataset):
            arrays[name] = np.asarray(entry, np.float32)

    with h5py.File(_saved(model)) as file:
        file.visititems(collect)
    return arrays


def _load_compact(model: Captioner | DigitModel, paths: Sequence[Path]) -> None:
    """Gives a model the weights of `training.publish`."""
    file = _MemoryFile()
    with h5py.File(file, "w") as weights:
        for path in paths:
            try:
                for name, array in compact_weights.unpack(path.read_bytes()).items():
                    weights[name] = array
            except (OSError, ValueError) as error:
                raise RunError(f"Cannot read {path}: {error}") from error
    _load(model, file, paths[0].parent)
