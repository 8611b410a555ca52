"""Digit runs as they are kept: the model with its weights, and the digits that it learned from.

`mnist.npz` and TensorFlow Datasets have the digits in different orders, and the dev split is the
last of either: most of what is dev in one is trained on in the other. So each run's folder holds
the fingerprint of its training digits, and no run is scored on what it has learned.
"""

from __future__ import annotations

from pathlib import Path

from digits.config import DigitData, DigitRunConfig, read_digit_config
from digits.data import Digits, load_digits
from digits.models.config import PortionsConfig, answer_names
from digits.models.model import DigitModel
from digits.models.portions import Portions
from digits.reader import build
from sat_tf.inference.run_folder import RunFolder
from sat_tf.inference.weights import load_weights
from sat_tf.util.errors import RunError, invalid_value
from sat_tf.util.files import write_atomically
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


def check_learned(run_dir: Path, train: Digits, data_dir: Path | None, otherwise: str) -> None:
    """Checks that a run learned from these training digits, if it recorded what it learned from.

    Raises:
        DataError: They are others; `otherwise` is what to give instead of their `--data-dir`.
    """
    path = RunFolder(run_dir).path / _FINGERPRINT
    if path.exists() and path.read_text("utf-8").strip() != train.fingerprint():
        place = "TensorFlow Datasets" if data_dir is None else data_dir
        raise DataError(
            f"{run_dir} learned from other digits than the training digits of {place}, so it may "
            "have seen the dev digits there. Give the `--data-dir` it was trained with (none for "
            f"TensorFlow Datasets), or {otherwise}."
        )


def check_init_from(run_dir: Path, ours: DigitData, data_dir: Path | None) -> None:
    """Checks that a run to start from learned from none of the present dev digits.

    Raises:
        ValueError: It did, or may have, as it learned from digits in another order.
    """
    theirs = read_digit_config(run_dir).data
    if theirs.dev_digits < ours.dev_digits:
        expected = f"at most {theirs.dev_digits}: {run_dir} learned from the digits before them"
        raise invalid_value("--data.dev_digits", expected, ours.dev_digits, "key")
    learned = load_digits("train", theirs, data_dir)
    check_learned(run_dir, learned, data_dir, "another `--init-from`")


def load_scored(run_dir: Path, split: str, data: DigitData, data_dir: Path | None) -> Digits:
    """Loads the digits of a split to score a run on.

    Test digits are never trained on, wherever they come from.

    Raises:
        DataError: They cannot be read, or come from other training digits than the run's.
    """
    if split != "test":
        train = load_digits("train", data, data_dir)
        check_learned(run_dir, train, data_dir, "`--split test`")
    return load_digits(split, data, data_dir)
