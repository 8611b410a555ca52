"""Systems that read digits: portions, the Spatial Transformer, RAM and DRAM.

    models    the systems themselves
    train, evaluate, publish, export, page    what the commands hand over to, see `hand_over`
    shipped   published models

Captioners know nothing of them. This module loads no TensorFlow before `load`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sat_tf.inference import published
from sat_tf.inference.run_folder import SYSTEM_KEY, RunFolder, read_object
from sat_tf.util.commands import command_line
from sat_tf.util.errors import RunError

if TYPE_CHECKING:
    from digits.reader import DigitReader

MANIFEST, WEIGHTS = "digits.json", "weights.npz"
"""Files of a published digit model beside its configuration."""

published.add_kind(MANIFEST, {published.CONFIG, WEIGHTS}, Path(__file__).parent / "shipped")


def names() -> list[str]:
    """Lists the digit models that ship with the package."""
    return published.names(MANIFEST)


def system_of(folder: Path) -> str | None:
    """Returns the system of a digit run or model; None for a captioner, or without either."""
    try:
        return read_object(RunFolder(folder).config).get(SYSTEM_KEY)
    except RunError:
        return None


def load(name: str | Path) -> DigitReader:
    """Loads a published digit model.

    Args:
        name: Its folder, or the name of a model that ships, see `names`.

    Raises:
        RunError: It is damaged; or the folder is that of a run, which has to be published first.
    """
    from digits.reader import load_reader

    return load_reader(published_folder(name))


def published_folder(name: str | Path) -> Path:
    """Returns the folder of a published digit model, which is not read.

    Raises:
        RunError: There is none; or the folder is that of a run, which has to be published first.
    """
    folder = published.locate(name)
    if not published.is_published(folder):
        command = command_line("training.evaluate", "--run-dir", folder)
        raise RunError(
            f"{folder} is a run: `{command}` evaluates it, and `python -m training.publish` makes "
            "a model of it that `digits.load` reads."
        )
    return folder


def refuse_published(folder: Path) -> None:
    """Refuses a published model, which can be neither evaluated nor published again.

    Raises:
        RunError: The folder is one.
    """
    if published.is_published(folder):
        raise RunError(
            f"{folder} is a published digit model: `digits.load` reads drawings with it, but only "
            "the run that it was made from can be evaluated or published."
        )
