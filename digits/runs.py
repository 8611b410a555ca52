"""Digit runs as they are kept: the model with its weights, and the digits that it learned from.

`mnist.npz` and TensorFlow Datasets have the digits in different orders, and the dev split is the
last of either: most of what is dev in one is trained on in the other. So each run's folder holds
the fingerprint of its training digits, and no run is scored on what it has learned.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from digits.config import DigitData, DigitRunConfig, read_digit_config
from digits.data import Digits, load_digits
from digits.models.config import PortionsConfig, answer_names
from digits.models.model import DigitModel
from digits.models.portions import Portions
from digits.reader import build
from sat_tf.errors import RunError, invalid_value
from sat_tf.files import write_atomically
from sat_tf.run_folder import RunFolder
from sat_tf.weights import load_weights
from training.data.examples import DataError

_FINGERPRINT = "digits.sha256"  # of the digits that a run learns from


def new_model(config: DigitRunConfig, precision: str | None = None) -> DigitModel:
    """Builds the model with new weights, not compiled, in the run's precision or another one."""
    model, data = config.model, config.data
    if isinstance(model, PortionsConfig):
        return Portions(model, data.portions)
    precision = precision or config.fit.precision
    policy = "mixed_bfloat16" if precision == "bfloat16" else "float32"
    return build(model, data.size, answer_names(data.target), policy)


def load(config: DigitRunConfig, run_dir: Path) -> DigitModel:
    """Loads the best weights of a run, in float32.

    Raises:
        RunError: There are no weights yet, or they do not fit.
    """
    weights = RunFolder(run_dir).best_weights
    if not weights.is_file():
        raise RunFolder(run_dir).without_weights()
    model = new_model(config, "float32")
    model.weights_sha256 = load_weights(model, weights)
    return model


def start_from(run_dir: Path, model: DigitModel) -> list[str]:
    """Gives a model the best weights of a finished run, layer by layer, where shapes agree.

    Layers that depend on the data set, such as the classifier, keep their new weights.

    Returns:
        Names of the layers whose weights were taken.

    Raises:
        ValueError: The folder is not a finished digit run, or none of its layers fits.
    """
    taken = []
    try:
        found = load(read_digit_config(run_dir), run_dir).saved_layers()
        for name, layer in model.saved_layers().items():
            ours = [weight.shape for weight in layer.weights]
            theirs = found[name].weights if name in found else []
            if ours and ours == [weight.shape for weight in theirs]:
                layer.set_weights(found[name].get_weights())
                taken.append(name)
        if not taken:
            raise RunError("none of its layers fits")
    except ValueError as error:
        expected = "a finished digit run with layers of this one's names and shapes"
        got = f"{str(run_dir)!r}: {str(error).rstrip('.')}"
        raise invalid_value("--init-from", expected, got, "key") from error
    return taken


def write_fingerprint(run_dir: Path, train: Digits) -> None:
    """Records the digits that a run learns from."""
    write_atomically(RunFolder(run_dir).path / _FINGERPRINT, train.fingerprint() + "\n")


def _differs(run_dir: Path, train: Digits) -> bool:
    """Returns whether a run is known to have learned from other digits."""
    path = RunFolder(run_dir).path / _FINGERPRINT
    return path.exists() and path.read_text("utf-8").strip() != train.fingerprint()


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


def load_scored(run_dir: Path, split: str, data: DigitData, data_dir: Path | None) -> Digits:
    """Loads the digits of a split to score a run on.

    Dev digits must not be among those that the run learned from, and train digits must be. Test
    digits are never trained on, wherever they come from.

    Raises:
        DataError: They cannot be read, or come from other training digits than the run's.
    """
    if split != "test":
        train = load_digits("train", data, data_dir)
        if _differs(run_dir, train):
            raise DataError(
                f"{run_dir} learned from other digits than the training digits of "
                f"{_place(data_dir)}, so it may have seen the {split} digits there: expected the "
                f"fingerprint in its {_FINGERPRINT}, got "
                f"{train.fingerprint()[:12]}... Give the `--data-dir` it was trained with (none "
                "for TensorFlow Datasets), or `--split test`."
            )
    return load_digits(split, data, data_dir)


def check_init_from(
    init_from: Path, theirs: DigitData, ours: DigitData, data_dir: Path | None
) -> None:
    """Checks that the weights to start from have not learned from the present dev digits.

    Raises:
        ValueError: They have, or may have, as that run learned from digits in another order.
    """
    learned = load_digits("train", theirs, data_dir)
    if _differs(init_from, learned):
        reason = f"it learned from others than those of {_place(data_dir)}"
    elif theirs.dev_digits < ours.dev_digits and len(learned) > len(
        load_digits("train", dataclasses.replace(ours, limit=None), data_dir)
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
