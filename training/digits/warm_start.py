"""Starting from another digit run: what was learned on single digits, taken to pairs of them."""

from __future__ import annotations

from pathlib import Path

from sat_tf import runs
from sat_tf.models.digit_model import DigitModel
from training.digits.config import read_digit_config
from training.digits.systems import load


def start_from(run_dir: Path, model: DigitModel) -> list[str]:
    """Gives a model the best weights of a finished run, layer by layer, where the shapes agree.

    What depends on the task, such as the classes, keeps its new weights.

    Args:
        run_dir: The finished run (`--init-from`).
        model: Of the new run.

    Returns:
        Names of the layers whose weights were taken.

    Raises:
        RunError: The folder is no finished digit run, or not one of its layers fits.
    """
    try:
        found = load(read_digit_config(run_dir), run_dir).saved_layers()
    except (runs.RunError, ValueError) as error:
        raise runs.RunError(_refusal(run_dir, str(error))) from error
    taken = []
    for name, layer in model.saved_layers().items():
        ours = [weight.shape for weight in layer.weights]
        if ours and name in found and ours == [weight.shape for weight in found[name].weights]:
            layer.set_weights(found[name].get_weights())
            taken.append(name)
    if not taken:
        raise runs.RunError(_refusal(run_dir, "no layer of it fits."))
    return taken


def _refusal(run_dir: Path, reason: str) -> str:
    return (
        "Received an invalid value for key `--init-from`: expected a finished digit run with "
        f"layers of this one's names and shapes, got {str(run_dir)!r}: {reason}"
    )
