"""Command lines that start from a recipe: any key of its configuration is a flag."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Annotated, TypeVar

import tyro

from training.recipes import RECIPES, RunConfig, recipe

T = TypeVar("T")

# --data.mirror True, like every other key.
Settings = Annotated[RunConfig, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]
"""Type of the field `config` of a command's arguments."""


def default_cache_dir() -> Path:
    """`$SAT_TF_CACHE`, or `~/.cache/sat_tf`."""
    return Path(os.environ.get("SAT_TF_CACHE") or Path.home() / ".cache" / "sat_tf")


def parse_settings(kind: type[T], argv: list[str], command: str, purpose: str) -> T:
    """Read a command line: the recipe first, then its keys, which it gives their defaults.

    Args:
        kind: Dataclass of the arguments; its first field is `config: Settings`.
        argv: The command line.
        command: The module, such as "training.train", for `--help`.
        purpose: A sentence, for `--help`.

    Raises:
        ValueError: There is no such recipe, or a value is out of its range.
        SystemExit: A flag or its type is wrong (status 2), or `--help` was asked for.
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--recipe", default="scenes_soft")
    known, _ = first.parse_known_args(argv)
    return tyro.cli(
        kind,
        args=argv,
        default=kind(recipe(known.recipe)),
        prog=f"python -m {command}",
        description=f"{purpose} Recipes: {', '.join(RECIPES)}.",
    )
