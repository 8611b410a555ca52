"""Systems that read digits: their data, recipes, training and evaluation.

Nothing outside imports more than this module, which loads no TensorFlow before `command`: the
commands of `training` hand digit runs over to the modules here.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from types import ModuleType

from sat_tf.commands import loading
from sat_tf.digits import SYSTEM_KEY, is_digit_run
from training.digits.recipes import RECIPES

__all__ = ["RECIPES", "command", "is_digit_report", "is_digit_run"]


def is_digit_report(report: Path) -> bool:
    """Returns whether the report of an evaluation is about a digit system.

    Raises:
        ValueError: The file is no report.
    """
    try:
        return SYSTEM_KEY in dict(json.loads(report.read_text("utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{report} is not the report of an evaluation.") from error


def command(name: str) -> ModuleType:
    """Loads a module of this package: `train`, `evaluate`, `publish` or `runs`."""
    with loading():
        return import_module(f"training.digits.{name}")
