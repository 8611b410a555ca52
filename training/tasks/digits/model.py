"""The model of a digit system: built, loaded, and initialized from another run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sat_tf import runs
from sat_tf.digits.config import PortionsConfig
from sat_tf.digits.models.digit_model import DigitModel
from sat_tf.digits.models.factory import build
from sat_tf.digits.models.portions import Portions
from sat_tf.errors import invalid_value
from sat_tf.run_folder import RunFolder
from training.tasks.digits.config import DigitRunConfig, read_digit_config


def new_model(config: DigitRunConfig) -> DigitModel:
    """Builds the model in the run's precision, with new weights, not compiled."""
    return _build(config, "mixed_bfloat16" if config.fit.precision == "bfloat16" else "float32")


def _build(config: DigitRunConfig, policy: str) -> DigitModel:
    model, data = config.model, config.data
    if isinstance(model, PortionsConfig):
        return Portions(model, data.portions)
    return build(model, data.size, data.answers, policy)


def load(config: DigitRunConfig, run_dir: Path) -> DigitModel:
    """Loads the best weights of a run, in float32.

    Raises:
        RunError: There are no weights yet, or they do not fit.
    """
    weights = RunFolder(run_dir).best_weights
    if not weights.is_file():
        raise runs.RunError(
            f"{run_dir} has no {weights.name}: the run has not finished an epoch yet."
        )
    model = _build(config, "float32")
    model.weights_sha256 = runs.load_weights(model, weights)
    return model


def start_from(
    run_dir: Path, model: DigitModel, name: str = "--init-from", kind: str = "key"
) -> list[str]:
    """Gives a model the best weights of a finished run, layer by layer, where shapes agree.

    Layers that depend on the data set, such as the classifier, keep their new weights.

    Returns:
        Names of the layers whose weights were taken.

    Raises:
        ValueError: The folder is no finished digit run, or none of its layers fits.
    """
    try:
        found = load(read_digit_config(run_dir), run_dir).saved_layers()
        taken = list(_copy_fitting(found, model.saved_layers()))
        if not taken:
            raise runs.RunError("none of its layers fits")
    except ValueError as error:
        expected = "a finished digit run with layers of this one's names and shapes"
        got = f"{str(run_dir)!r}: {str(error).rstrip('.')}"
        raise invalid_value(name, expected, got, kind) from error
    return taken


def _copy_fitting(found: dict, wanted: dict) -> Iterator[str]:
    """Copies the weights of layers with equal names and shapes; yields their names."""
    for name, layer in wanted.items():
        ours = [weight.shape for weight in layer.weights]
        if ours and name in found and ours == [weight.shape for weight in found[name].weights]:
            layer.set_weights(found[name].get_weights())
            yield name
