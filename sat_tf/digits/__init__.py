"""Models that read digits: portions, the Spatial Transformer, RAM and DRAM.

Only `training.digits` and the page import more than this module, which loads no TensorFlow before
`load`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sat_tf import published
from sat_tf.commands import command_line
from sat_tf.errors import RunError
from sat_tf.run_folder import RunFolder, read_object

if TYPE_CHECKING:
    from sat_tf.digits.reader import DigitReader

SYSTEM_KEY = "system"
"""Key of a configuration that names the digit system; a captioner's has none."""

MANIFEST, WEIGHTS = "digits.json", "weights.npz"
"""Files of a published digit model beside its configuration."""


def names() -> list[str]:
    """Lists the digit models that ship with the package."""
    return published.names(MANIFEST)


def system_of(folder: Path) -> str | None:
    """Returns the system of a digit run or model; None for a captioner, or without either."""
    try:
        return read_object(RunFolder(folder).config).get(SYSTEM_KEY)
    except RunError:
        return None


def is_digit_run(name: str | Path) -> bool:
    """Returns whether the run or model of this folder or name is of a digit system.

    A name that leads nowhere is not: the command that it was given to will say so.
    """
    try:
        return system_of(published.locate(name)) is not None
    except RunError:
        return False


def load(folder: Path) -> DigitReader:
    """Loads a published digit model; see `sat_tf.load`.

    Raises:
        RunError: It is damaged; or the folder is that of a run, which has to be published first.
    """
    if not published.is_published(folder):
        refuse(folder, read_object(RunFolder(folder).config))
    from sat_tf.digits.reader import load_reader

    return load_reader(folder)


def refuse(folder: Path | RunFolder, config: Mapping[str, Any]) -> None:
    """Refuses a digit system, by its folder and configuration, where a captioner is expected.

    Raises:
        RunError: It is of a digit system; the message says what can be done with it.
    """
    if SYSTEM_KEY not in config:
        return
    command = command_line("training.evaluate", "--run-dir", folder)
    use = f"`{command}` evaluates it, and `python -m training.publish` makes a model of it that "
    use += "`sat_tf.load` reads."
    if (Path(folder) / MANIFEST).is_file():
        use = "`sat_tf.load` reads drawings with it, and `python -m serving.export` exports it."
    raise RunError(
        f"{folder} is of the digit system {config[SYSTEM_KEY]!r}, which writes no captions; {use}"
    )


def refuse_published(folder: Path) -> None:
    """Refuses a published model, which can be neither evaluated nor published again.

    Raises:
        RunError: The folder is one.
    """
    if published.is_published(folder):
        raise RunError(
            f"{folder} is a published digit model: `sat_tf.load` reads drawings with it, but only "
            "the run that it was made from can be evaluated or published."
        )
