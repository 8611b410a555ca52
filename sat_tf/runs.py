"""Loading of trained captioners from a run's folder."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from sat_tf import digits, published
from sat_tf.config import CaptionerConfig
from sat_tf.errors import RunError, other_version
from sat_tf.fields import check_argument, from_dict
from sat_tf.models.captioner import Captioner
from sat_tf.run_folder import RunFolder, read_object
from sat_tf.trained_captioner import Caption, Image, TrainedCaptioner
from sat_tf.vocabulary import Vocabulary
from sat_tf.weights import load_compact, load_weights

if TYPE_CHECKING:
    from sat_tf.digits.reader import DigitReader

__all__ = [
    "Caption",
    "Image",
    "RunError",
    "TrainedCaptioner",
    "load",
    "load_captioner",
    "read_average",
    "read_config",
    "read_vocabulary",
]


def load(run_dir: str | Path) -> TrainedCaptioner | DigitReader:
    """Loads the best captioner of a run, or a published model.

    Args:
        run_dir: Folder written by `python -m training.train` or `python -m training.publish`; or
            the name of a model that ships (`sat_tf.published.names()`, `sat_tf.digits.names()`);
            or `hf://OWNER/NAME[@REVISION]` on the Hugging Face Hub.

    Returns:
        A `TrainedCaptioner`, which needs neither the data set nor the encoder's weights file; of a
        digit model a `DigitReader`.

    Raises:
        RunError: The folder is not a run, or its files do not fit each other.
    """
    folder = published.locate(check_argument("run_dir", run_dir, str | Path))
    return load_captioner(folder) if digits.system_of(folder) is None else digits.load(folder)


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
        load_compact(model, [files[name] for name in published.WEIGHTS.values()])
    digest = None if is_published else load_weights(model, folder.best_weights)
    return TrainedCaptioner(model, vocabulary, folder.path, digest)


def read_config(run_dir: Path | RunFolder) -> CaptionerConfig:
    """Reads the captioner's part of a run's configuration.

    Raises:
        RunError: The folder is not a captioner's run, or of another version.
    """
    path = RunFolder(run_dir).config
    values = read_object(path)
    digits.refuse(run_dir, values)
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
