"""Systems that read digits: portions, the Spatial Transformer, RAM and DRAM.

    models                      the systems themselves
    train, evaluate, publish    the commands: `python -m digits.train --recipe ram_28`
    reader                      published models, LiteRT graphs that need no TensorFlow
    page                        the second view of the page
    shipped                     published models

Captioners know nothing of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sat_tf.util.errors import RunError

if TYPE_CHECKING:
    from digits.reader import DigitReader

SHIPPED = Path(__file__).parent / "shipped"
"""Folder of the pretrained models."""


def names() -> list[str]:
    """Lists the pretrained digit models."""
    return sorted(path.parent.name for path in SHIPPED.glob("*/digits.json"))


def load(name: str | Path) -> DigitReader:
    """Loads a published digit model, without TensorFlow.

    Args:
        name: Its folder, or one of `names`.

    Raises:
        RunError: There is none, or it is damaged.
        ValueError: LiteRT is not installed.
    """
    from digits.reader import load_reader

    return load_reader(published_folder(name))


def published_folder(name: str | Path) -> Path:
    """Returns the folder of a published digit model, which is not read.

    Raises:
        RunError: There is none; or the folder is that of a run, which has to be published first.
    """
    from digits.reader import MANIFEST

    folder = Path(name)
    if not folder.exists() and (SHIPPED / folder.name / MANIFEST).is_file():
        folder = SHIPPED / folder.name
    if (folder / MANIFEST).is_file():
        return folder
    if (folder / "config.json").is_file():
        raise RunError(f"{folder} is a run: `python -m digits.publish {folder} OUT` publishes it.")
    raise RunError(f"There is no digit model {name}: expected a folder or {', '.join(names())}.")
