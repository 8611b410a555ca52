"""The digits that a run has learned from, so that it is not scored on them.

`mnist.npz` and TensorFlow Datasets have the digits in different orders, and the dev split is the
last of either: most of what is dev in one is trained on in the other. So each run's folder holds
the fingerprint of its training digits.
"""

from __future__ import annotations

from pathlib import Path

from sat_tf.errors import invalid_value
from sat_tf.files import write_atomically
from sat_tf.run_folder import RunFolder
from training.data.digits.config import DigitData
from training.data.digits.mnist import Digits, load_digits
from training.data.examples import DataError


def write_fingerprint(run_dir: Path, train: Digits) -> None:
    """Records the digits that a run learns from."""
    write_atomically(RunFolder(run_dir).digits, train.fingerprint() + "\n")


def read_fingerprint(run_dir: Path) -> str | None:
    """Reads the fingerprint of a run's training digits; None if it is not recorded."""
    path = RunFolder(run_dir).digits
    return path.read_text("utf-8").strip() if path.exists() else None


def _differs(run_dir: Path, train: Digits) -> bool:
    return read_fingerprint(run_dir) not in (None, train.fingerprint())


def check_resumed(run_dir: Path, train: Digits) -> None:
    """Checks that a run that is resumed uses the digits it was started with.

    Raises:
        DataError: They are others.
    """
    if _differs(run_dir, train):
        raise DataError(
            f"{run_dir} belongs to a run on other digits than these. Give it its own "
            "`--data-dir`, or choose another `--run-dir`."
        )


def check_scored(run_dir: Path, split: str, data: DigitData, data_dir: Path | None) -> None:
    """Checks that a run has not learned from dev digits, and has learned from train digits.

    Test digits are never trained on, wherever they come from.

    Raises:
        DataError: The split comes from other training digits than the run's.
    """
    if split == "test":
        return
    train = load_digits("train", data_dir, data.dev_digits, data.limit)
    if _differs(run_dir, train):
        raise DataError(
            f"{run_dir} learned from other digits than the training digits of "
            f"{_place(data_dir)}, so it may have seen the {split} digits there: expected the "
            f"fingerprint in its {RunFolder(run_dir).digits.name}, got "
            f"{train.fingerprint()[:12]}... Give the `--data-dir` it was trained with (none for "
            "TensorFlow Datasets), or `--split test`."
        )


def check_init_from(
    init_from: Path, theirs: DigitData, ours: DigitData, data_dir: Path | None
) -> None:
    """Checks that the weights to start from have not learned from the present dev digits.

    Raises:
        ValueError: They have, or may have, as that run learned from digits in another order.
    """
    learned = load_digits("train", data_dir, theirs.dev_digits, theirs.limit)
    if _differs(init_from, learned):
        reason = f"it learned from others than those of {_place(data_dir)}"
    elif theirs.dev_digits < ours.dev_digits and len(learned) > len(
        load_digits("train", data_dir, ours.dev_digits)
    ):
        reason = (
            f"its `--data.dev_digits` were {theirs.dev_digits}, those of this run are "
            f"{ours.dev_digits}"
        )
    else:
        return
    expected = "a run that learned from none of this run's dev digits"
    raise invalid_value("--init-from", expected, f"{str(init_from)!r}: {reason}", "key")


def _place(data_dir: Path | None) -> str:
    return "TensorFlow Datasets" if data_dir is None else str(data_dir)
