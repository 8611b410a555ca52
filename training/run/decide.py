"""Command lines: the keys of a recipe as flags, and checks before the work begins."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import functools
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from sat_tf.util.commands import check_removed, parse_flags
from sat_tf.util.errors import invalid_value
from training.data.readers import check_there
from training.run.config import RunConfig
from training.run.config_groups import BaseOptimizerConfig
from training.run.recipes import RECIPES

T = TypeVar("T")

DEFAULT_RECIPE = "scenes_soft"
HELP = frozenset({"-h", "--help", "--help-all"})
"""Flags that ask for help."""

_GROUPS = {
    "Drawn scenes, no data needed; start with scenes_soft, the default": ("scenes",),
    "Your own photographs, in --data-dir; folder_from_flickr8k fine-tunes": ("folder",),
    "A data set, in --data-dir": ("flickr8k", "flickr30k", "coco"),
}
_OTHERS = "Digits: recurrent attention, Spatial Transformers and their baselines"
_USED_MOST = (
    "--seed --init-from --data.language --data.tokens --data.columns --attention.kind "
    "--encoder.name --encoder.weights --optimizer.learning-rate --fit.epochs --fit.batch-size "
    "--fit.monitor --fit.patience --search.beam"
)

# --data.mirror True, like every other key.
Settings = Annotated[RunConfig, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]
"""Type of the field `config` of a command's arguments."""


def peek_flag(flag: str, argv: list[str], default: str | None = None) -> str | None:
    """Returns the value of a flag that decides which other flags there are.

    Raises:
        SystemExit: The flag has no value (status 2).
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    # tyro accepts dashes and underscores alike.
    first.add_argument(flag, f"--{flag[2:].replace('-', '_')}", default=default, dest="value")
    return first.parse_known_args(argv)[0].value


def find_recipe(recipes: Mapping[str, T], name: str) -> T:
    """Returns the configuration of this name.

    Raises:
        ValueError: There is no such recipe; the message names the closest one, or all of them.
    """
    if name not in recipes:
        close = difflib.get_close_matches(name, recipes, n=1)
        expected = f"a recipe such as {close[0]}" if close else f"one of {', '.join(recipes)}"
        raise invalid_value("--recipe", expected, repr(name))
    return recipes[name]


def parse_settings(
    kind: type[T],
    argv: list[str],
    command: str,
    purpose: str,
    recipes: Mapping[str, Any] = RECIPES,
) -> T:
    """Reads a command line: first the recipe, then the keys that change it.

    `--help` names the keys that are used most, `--help-all` describes all of them.

    Args:
        kind: Dataclass of the arguments; its first field is `config: Settings`.
        argv: The command line.
        command: The module, such as "training.train", for `--help`.
        purpose: A sentence for `--help`.
        recipes: The recipes to choose from.

    Raises:
        ValueError: There is no such recipe, or a value is out of its range.
        SystemExit: A flag or its type is wrong (status 2), or help was asked for.
    """
    description = f"{purpose} Recipes (--recipe):\n{recipe_list(recipes)}"
    check_removed(argv, command)
    config = find_recipe(recipes, peek_flag("--recipe", argv, DEFAULT_RECIPE))
    if "--help-all" in argv:
        argv = ["--help"]
    elif HELP & {*argv}:
        hidden = [("config", Annotated[type(config), tyro.conf.Suppress])]
        kind = dataclasses.make_dataclass(kind.__name__, hidden, bases=(kind,), frozen=True)
        description += "\n\nEvery setting of a recipe is a flag, too; --help-all lists them."
        if isinstance(config, RunConfig):
            keys = textwrap.fill(_USED_MOST, 78, initial_indent="  ", subsequent_indent="  ")
            description += f" Used most:\n{keys}"
    found = parse_flags(kind, argv, command, default=kind(config), description=description)
    if not isinstance(found.config, RunConfig) or found.config.init_from is None:
        return found
    from training.run.init_from import shaped_like_origin

    run_dir = None
    if hasattr(found, "run_dir"):
        run_dir = found.run_dir or Path("runs") / found.config.recipe
    return dataclasses.replace(found, config=shaped_like_origin(found.config, argv, run_dir))


def recipe_list(recipes: Iterable[str]) -> str:
    """Returns the names, under what they are for."""
    groups: dict[str, list[str]] = {}
    for name in recipes:
        first = name.partition("_")[0]
        title = next((t for t, firsts in _GROUPS.items() if first in firsts), _OTHERS)
        groups.setdefault(title, []).append(name)
    order = [title for title in (*_GROUPS, _OTHERS) if title in groups]
    wrap = functools.partial(textwrap.fill, width=78, initial_indent="    ")
    names = {title: wrap(", ".join(groups[title]), subsequent_indent="    ") for title in order}
    return "\n".join(f"  {title}:\n{text}" for title, text in names.items())


def check_optimizer(config: BaseOptimizerConfig, base: BaseOptimizerConfig) -> None:
    """Checks that weight decay, unless it is the recipe's, goes with an optimizer that has it.

    Raises:
        ValueError: The optimizer has no weight decay.
    """
    if config.weight_decay not in (0.0, base.weight_decay) and config.name != "adamw":
        expected = f"none with `--optimizer.name {config.name}`, as only adamw supports it"
        raise invalid_value("--optimizer.weight_decay", expected, config.weight_decay, "key")


def check_data_dir(config: Any, data_dir: Path | None) -> None:
    """Checks where the data is before TensorFlow, which takes seconds, is loaded.

    Raises:
        ValueError: The data set is drawn and reads no files, or a folder or file does not exist.
    """
    if isinstance(config, RunConfig) and data_dir is None:
        check_there(config.data, None)
    if data_dir is None:
        return
    if getattr(config.data, "name", None) == "scenes":
        folder = f"folder_{config.attention.kind}"
        close = folder if folder in RECIPES else "folder_soft"
        raise ValueError(
            f"`{config.recipe}` reads no data, but received `--data-dir {data_dir}`; did you mean "
            f"`--recipe {close}`?"
        )
    if data_dir.is_file():
        raise ValueError(f"`--data-dir {data_dir}` is a file; give its folder.")
    if not data_dir.is_dir():
        raise ValueError(f"There is no folder `--data-dir {data_dir}`; check the path.")
    if isinstance(config, RunConfig):
        check_there(config.data, data_dir)


def check_apart(flag: str, out: Path, data_dir: str | Path | None) -> None:
    """Checks that results do not go among the data.

    Raises:
        ValueError: They would, and could replace a file of captions or pass for one.
    """
    if data_dir is not None and out.resolve() == Path(data_dir).resolve():
        expected = "a folder other than the data's, where results could replace its captions"
        raise invalid_value(flag, expected, str(out))


def check_own_images(flag: str, out: Path, images: str, written_with: str) -> None:
    """Checks that images which results will replace are those of earlier results.

    Args:
        flag: The flag of the results' folder.
        out: That folder.
        images: Its folder of images.
        written_with: File of the results, which is there if the images are theirs.

    Raises:
        ValueError: There are PNG files of the user's own.
    """
    if any((out / images).glob("*.png")) and not (out / written_with).is_file():
        expected = f"a folder whose `{images}` is not in use, as images of the results go there"
        raise invalid_value(flag, expected, str(out))
