"""Entry points for commands that are given a recipe, a run or a model of digits.

Everything here loads what it needs when it is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from digits import system_of
from sat_tf.inference import published
from sat_tf.util.commands import loading
from sat_tf.util.errors import RunError

if TYPE_CHECKING:
    from training.run.signals import Interrupts


def takes(name: str | Path) -> bool:
    """Returns whether a run or model, by folder or name, is of a digit system.

    A name that leads nowhere is not: the command that it was given to will say so.
    """
    try:
        return system_of(published.locate(name)) is not None
    except RunError:
        return False


def recipes() -> Mapping[str, Any]:
    """Returns the recipes of the digit systems by name."""
    from digits.recipes import RECIPES

    return RECIPES


def train(argv: Sequence[str], interrupts: Interrupts) -> None:
    """Trains a digit system: `training.train` with one of `recipes`."""
    from digits.recipes import parse

    arguments = parse([*argv])  # before TensorFlow is loaded: a flag may be wrong
    with loading():
        from digits.train import run
    run(arguments, interrupts)


def evaluate(argv: list[str]) -> int:
    """Evaluates a digit run: `training.evaluate`; returns the exit status."""
    with loading():
        from digits.evaluate import main
    return main(argv)


def publish(
    run: Path, out: Path, licence: str | None, checked: tuple[str, Path | None] | None
) -> str:
    """Publishes a digit run: `training.publish`; see `digits.publish.publish`."""
    with loading():
        from digits.publish import publish
    return publish(run, out, licence, checked)


def export(run_dir: Path, out: Path | None, **others: Any) -> None:
    """Exports a published digit model: `serving.export`; see `digits.export.run`."""
    with loading():
        from digits.export import run
    run(run_dir, out, **others)
