"""Names and contents of the files in a run's folder. Imports neither TensorFlow nor Keras."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sat_tf.config import CaptionerConfig
from sat_tf.text.vocabulary import Vocabulary
from sat_tf.util.errors import RunError, other_version
from sat_tf.util.fields import from_dict
from sat_tf.util.files import json_object, read_content, sha256_of


def read_object(path: Path) -> dict[str, Any]:
    """Reads a JSON object from a run's folder.

    Raises:
        RunError: The file is missing or damaged.
    """
    try:
        return json_object(read_content(path))
    except FileNotFoundError as error:
        raise RunError(f"{path.parent} is not a run: it has no {path.name}.") from error
    except (OSError, ValueError) as error:
        raise RunError(f"Cannot read {path}: {error}") from error


SYSTEM_KEY = "system"
"""Key of a configuration of another system than a captioner, which writes no captions."""


def read_captioner(folder: Path | RunFolder) -> dict[str, Any]:
    """Reads the configuration of a captioner's run.

    Raises:
        RunError: It is missing or damaged, or that of another system.
    """
    values = read_object(RunFolder(folder).config)
    if SYSTEM_KEY in values:
        raise RunError(
            f"{folder} is of the system {values[SYSTEM_KEY]!r}, which writes no captions: use "
            "`python -m digits.evaluate`."
        )
    return values


def data_of(config: Path) -> dict[str, Any]:
    """Reads what a run's configuration says of its data; empty if it says nothing.

    Raises:
        RunError: The file is missing or damaged.
    """
    found = read_object(config).get("data")
    return found if isinstance(found, dict) else {}


def outdated_note(report: Mapping[str, Any], weights_sha256: str | None) -> str:
    """Returns a note if a report was made with other weights, else an empty text.

    Reports of a published model do not name their weights.
    """
    if report.get("weights_sha256") in (None, weights_sha256):
        return ""
    return f"The evaluation on {report['split']} is of earlier weights: left out."


def _file(name: str, doc: str) -> property:
    """A property that gives the path of the file or folder of this name."""
    return property(lambda folder: folder.path / name, doc=doc)


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run: the path of everything that training, evaluation and export keep.

    It names files and creates none. `Path(folder)` and `str(folder)` give the folder itself.

    Args:
        path: The folder, as given to `--run-dir`.

    Example:
        ```python
        folder = RunFolder("runs/scenes_soft")
        folder.best_weights  # runs/scenes_soft/best.weights.h5
        folder.evaluation("test")  # runs/scenes_soft/evaluation/test
        ```
    """

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    config = _file("config.json", "Configuration, JSON; a folder without it is not a run.")
    vocabulary = _file("vocabulary.json", "Vocabulary of a captioner, JSON.")
    best_weights = _file("best.weights.h5", "Weights of the best epoch.")
    average = _file(
        "average.json",
        "Averaged runs with their shares, JSON; only in a folder of averaged weights.",
    )
    data = _file("data.json", "Fingerprints and unreadable images of a captioner's splits, JSON.")
    dataset = _file(
        "dataset.jsonl",
        "Data as it was read: a line per image with captions and split, or why it is left out.",
    )
    contact_sheet = _file("dataset.html", "Twelve training images with their captions, as read.")
    data_dir = _file(
        "data_dir.txt",
        "Path of the data folder at training time, text; no part of what the run is.",
    )
    familiarity = _file(
        "familiarity.json", "Statistics of the training images' annotations, JSON; see `limits`."
    )
    confidence = _file("confidence.json", "Chance of a caption of being right, JSON.")
    lock = _file(".lock", "File lock of the process that trains here.")
    checkpoints = _file("checkpoints", "Folder of the last checkpoint.")
    logs = _file("logs", "Folder of TensorBoard's event files.")
    export = _file("export", "Folder of numbered SavedModels.")
    graphs = _file("graphs", "LiteRT graphs of the best weights, with their marker; see `graphs`.")

    def evaluation(self, split: str) -> Path:
        """Folder of the reports and attention pages of one split."""
        return self.path / "evaluation" / split

    def has_checkpoint(self) -> bool:
        """Returns whether there is a whole checkpoint, readable or not."""
        return any(self.checkpoints.glob("epoch-*"))

    def without_weights(self) -> RunError:
        """Returns the error of a run without best weights, which are missing or not there yet."""
        name = self.best_weights.name
        epochs = [path.name.split("-")[1] for path in self.checkpoints.glob("epoch-*")]
        if any(epoch.isdecimal() and int(epoch) for epoch in epochs) or self.reports():
            return RunError(
                f"{self} has no {name}, although the run has finished an epoch: the file is gone. "
                "Copy it back, or train the run again in another folder."
            )
        return RunError(f"{self} has no {name}: the run has not finished an epoch yet.")

    def reports(self) -> list[Path]:
        """Reports of the evaluations that there are, JSON, sorted by split."""
        return sorted(self.path.glob("evaluation/*/report.json"))

    def weights_sha256(self) -> str | None:
        """SHA-256 (hexadecimal) of the weights now; None without them, as in a published model."""
        try:
            return sha256_of(self.best_weights)
        except FileNotFoundError:
            return None

    def skipped(self, split: str) -> Path:
        """Images of a split that cannot be read, with reasons, JSON."""
        return self.path / f"skipped_{split}.json"


def read_config(run_dir: Path | RunFolder) -> CaptionerConfig:
    """Reads the captioner's part of a run's configuration.

    Raises:
        RunError: The folder is not a captioner's run, or of another version.
    """
    path, values = RunFolder(run_dir).config, read_captioner(run_dir)
    names = [field.name for field in dataclasses.fields(CaptionerConfig)]
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
        RunError: It is missing or damaged, or another run's.
    """
    folder = RunFolder(run_dir)
    path = folder.vocabulary
    try:
        vocabulary = Vocabulary.load(path)
    except (OSError, ValueError) as error:
        raise RunError(f"Cannot read {path}: {error}") from error
    # Published captioners have no such file; a damaged one is reported where it is used.
    recorded = None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        recorded = json.loads(folder.data.read_text("utf-8"))["vocabulary"]["fingerprint"]
    if recorded not in (None, vocabulary.fingerprint()):
        raise RunError(
            f"{path} is another run's: its words are not those that the run in {folder} was "
            "trained with. Copy its own vocabulary.json back."
        )
    return vocabulary


def read_average(run_dir: Path | RunFolder) -> dict[str, float]:
    """Reads which runs were averaged, with their shares; empty for a run that was trained."""
    path = RunFolder(run_dir).average
    return read_object(path) if path.exists() else {}
