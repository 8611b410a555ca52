"""The configuration of a run, decided here alone: flags, recipe, origin and earlier run.

`parse_settings` puts the flags over the recipe and takes over what an earlier run has decided;
`check` and `resolve` refuse what cannot be trained before TensorFlow is loaded.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import difflib
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from sat_tf.config import HUB, JOIN, SCENES_CNN, weights_files
from sat_tf.inference.run_folder import RunFolder, read_config
from sat_tf.util.commands import check_removed, loading, parse_flags
from sat_tf.util.errors import RunError, invalid_value
from sat_tf.util.fields import replaced
from training.data.dataset import read_data_dir
from training.data.readers import check_there
from training.run.config import RunConfig, read_run_config
from training.run.recipes import RECIPES

T = TypeVar("T")

_USED_MOST = (
    "--seed --init-from --data.language --data.tokens --data.columns --attention.kind "
    "--encoder.name --encoder.weights --optimizer.learning-rate --fit.epochs --fit.batch-size "
    "--fit.monitor --fit.patience --search.beam"
)
_OWN = ("weights", "trainable", "trainable_from")  # of a run's encoder, not its origin's

# --data.mirror True, like every other key.
Settings = Annotated[RunConfig, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]
"""Type of the field `config` of a command's arguments."""


# Flags over a recipe.


def peek_flag(flag: str, argv: Sequence[str], default: str | None = None) -> str | None:
    """Returns the value of a flag that decides which other flags there are.

    Raises:
        SystemExit: The flag has no value (status 2).
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    # tyro accepts dashes and underscores alike.
    first.add_argument(flag, f"--{flag[2:].replace('-', '_')}", default=default, dest="value")
    return first.parse_known_args(argv)[0].value


def parse_settings(kind: type[T], argv: Sequence[str], command: str, purpose: str) -> T:
    """Reads a command line: first the recipe, then the keys that change it.

    `--help` names the keys that are used most, `--help-all` describes all of them.

    Args:
        kind: Dataclass of the arguments; its first field is `config: Settings`.
        argv: The command line.
        command: The module, such as "training.train", for `--help`.
        purpose: A sentence for `--help`.

    Raises:
        ValueError: The recipe is unknown, a value is out of its range, or a flag contradicts the
            shape of the run of `--init-from`.
        SystemExit: A flag or its type is wrong (status 2), or help was asked for.
    """
    check_removed(argv, command)
    name = peek_flag("--recipe", argv, "scenes_soft")
    if name not in RECIPES:
        close = difflib.get_close_matches(name, RECIPES, n=1)
        expected = f"a recipe such as {close[0]}" if close else f"one of {', '.join(RECIPES)}"
        raise invalid_value("--recipe", expected, repr(name))
    recipes = textwrap.fill(", ".join(RECIPES), 78, initial_indent="  ", subsequent_indent="  ")
    description = f"{purpose} Recipes (--recipe):\n{recipes}\n\n"
    description += "Without data, start with scenes_soft, the default; folder_from_flickr8k\n"
    description += "fine-tunes on your own photographs, in --data-dir."
    if "--help-all" in argv:
        argv = ["--help"]
    elif {"-h", "--help"} & {*argv}:
        hidden = [("config", Annotated[RunConfig, tyro.conf.Suppress])]
        kind = dataclasses.make_dataclass(kind.__name__, hidden, bases=(kind,), frozen=True)
        keys = textwrap.fill(_USED_MOST, 78, initial_indent="  ", subsequent_indent="  ")
        description += "\n\nEvery setting of a recipe is a flag, too; --help-all lists them. "
        description += f"Used most:\n{keys}"
    found = parse_flags(kind, argv, command, default=kind(RECIPES[name]), description=description)
    data_dir, run_dir = found.data_dir, None
    if hasattr(found, "run_dir"):
        run_dir = found.run_dir or Path("runs") / found.config.recipe
    config = _settled(_shaped_like_origin(found.config, argv, run_dir), run_dir, data_dir)
    return dataclasses.replace(found, config=config)


# What earlier runs have decided.


def _settled(config: RunConfig, run_dir: Path | None, data_dir: Path | None) -> RunConfig:
    """Returns the configuration with the splits and the precision of the run in the folder.

    Without one, with the splits of the run that it starts from, if that learned from the same
    folder: its training images must not become dev or test images.
    """
    for folder in map(RunFolder, filter(None, (run_dir, config.init_from))):
        recorded_dir = None if data_dir is None else read_data_dir(folder)
        same = recorded_dir is not None and recorded_dir.resolve() == data_dir.resolve()
        if folder.config.is_file() and (folder.path == run_dir or same):
            with contextlib.suppress(ValueError):  # `check_run_dir` says what is wrong with it
                recorded = read_run_config(folder.path)
                config = config.split_at(recorded.data.held_out)
                if folder.path == run_dir and config.fit.precision == "auto":
                    config = replaced(config, fit={"precision": recorded.fit.precision})
    return config


def _shaped_like_origin(config: RunConfig, argv: Sequence[str], run_dir: Path | None) -> RunConfig:
    """Returns the configuration with encoder and decoder of the run of `--init-from`, if any.

    A flag given wins over that run's image size and layer; dropout and what learns stay. A run
    folder that holds a run already decides, as the other may be gone.
    """
    if config.init_from is None:
        return config
    from sat_tf.inference import published

    try:
        begun = run_dir is not None and RunFolder(run_dir).has_checkpoint()
        origin = read_config(run_dir if begun else published.locate(config.init_from))
    except RunError:  # where it is needed, `check_init_from` says so
        return config
    given = {word.partition("=")[0][2:].replace("-", "_") for word in argv if word[:2] == "--"}
    plain = lambda value: str(value).lower().replace("_", "")  # noqa: E731 - Keras' have capitals
    for part in ("encoder", "decoder"):
        ours, theirs = vars(getattr(config, part)), vars(getattr(origin, part))
        taken = {k: v for k, v in theirs.items() if not k.endswith("_dropout") and k not in _OWN}
        for key in [key for key in taken if f"{part}.{key}" in given]:
            same = plain(taken.pop(key)) == plain(ours[key])
            if not same and (part == "decoder" or key == "name"):
                expected = f"{theirs[key]}, as in `--init-from {config.init_from}` (leave it out)"
                raise invalid_value(f"--{part}.{key}", expected, ours[key], "key")
        config = replaced(config, **{part: taken})
    return config


def check_init_from(config: RunConfig) -> None:
    """Checks that the run of `--init-from` exists, if there is to be one.

    Raises:
        ValueError: The folder holds no run, and no published captioner has that name.
    """
    if config.init_from is None:
        return
    expected, origin = "the folder of a finished run", Path(config.init_from)
    if origin.parent == Path("runs") and origin.name in RECIPES and not origin.exists():
        expected += f"; train `--recipe {origin.name}` with the same flags first"
        raise invalid_value("--init-from", expected, f"{origin}, which does not exist", "key")
    from sat_tf.inference import published

    try:
        found = published.locate(config.init_from)
        if not RunFolder(found).config.is_file():
            raise RunError(f"{found}, which has no {RunFolder(found).config.name}")
    except RunError as error:
        expected, got = f"{expected} or a published captioner", str(error).rstrip(".")
        raise invalid_value("--init-from", expected, got, "key") from error


# Before data is read.


def check(config: RunConfig, strategy: str) -> None:
    """Checks the encoder, that flags go together, and that files which teach exist.

    Reading a saved configuration does not check it: files may be gone since.

    Raises:
        ValueError: The message names the key.
    """
    encoder = config.encoder
    if (encoder.name, encoder.layer, encoder.trainable_from) != (SCENES_CNN, None, None):
        from sat_tf.layers.encoder_names import check_encoder

        check_encoder(encoder)
    for key, expected, got in _faults(config, strategy):
        raise invalid_value(f"--{key}", expected, got, "key")


def _faults(config: RunConfig, strategy: str) -> Iterator[tuple[str, str, Any]]:
    """Yields keys that cannot be trained with: key, expected and given value."""
    attention, fit, weights = config.attention, config.fit, config.encoder.weights
    decay, usual = config.optimizer.weight_decay, RECIPES[config.recipe].optimizer.weight_decay
    if decay not in (0.0, usual) and config.optimizer.name != "adamw":
        adamw = f"none with `--optimizer.name {config.optimizer.name}`, as only adamw has it"
        yield "optimizer.weight_decay", adamw, decay
    for name, file in zip(config.encoder.name.split(JOIN), weights_files(weights), strict=False):
        own = name == SCENES_CNN or name.startswith(HUB)
        if own and file == "imagenet" and config.init_from is None:
            yield "encoder.weights", f"none or a file: {name} has no ImageNet weights", weights
    if attention.supervision_weight and attention.teacher is None and config.data.name != "scenes":
        boxes = "boxes of the training captions' phrases to supervise attention by"
        yield "attention.teacher", boxes, None
    if attention.teacher is not None and not Path(attention.teacher).exists():
        got = f"{attention.teacher}, which does not exist"
        yield "attention.teacher", "a file or folder of boxes", got
    if fit.distillation_weight and (fit.predictions is None or not Path(fit.predictions).is_file()):
        yield "fit.predictions", "a file of training.distill", fit.predictions
    if config.reward.meteor_weight:
        from sat_tf.scores.meteor_scoring import check_tables
        from sat_tf.scores.meteor_words import TablesError

        try:
            check_tables()
        except TablesError as error:
            without = f"0 without METEOR's tables ({error})"
            yield "reward.meteor_weight", without, config.reward.meteor_weight
    if strategy == "multi_worker" and fit.precision == "auto":
        yield "fit.precision", "float32 or bfloat16 with `--strategy multi_worker`", "auto"
    if strategy == "multi_worker" and fit.jit_compile:
        yield "fit.jit_compile", "False with `--strategy multi_worker`", True


def check_data_dir(config: RunConfig, data_dir: Path | None) -> None:
    """Checks where the data is before TensorFlow, which takes seconds, is loaded.

    Raises:
        ValueError: The data set is drawn and reads no files, or a folder or file does not exist.
    """
    if data_dir is not None and config.data.name == "scenes":
        close = "folder_hard" if config.attention.kind == "hard" else "folder_soft"
        raise ValueError(
            f"`{config.recipe}` reads no data, but received `--data-dir {data_dir}`; did you mean "
            f"`--recipe {close}`?"
        )
    if data_dir is not None and data_dir.is_file():
        raise ValueError(f"`--data-dir {data_dir}` is a file; give its folder.")
    if data_dir is not None and not data_dir.is_dir():
        raise ValueError(f"There is no folder `--data-dir {data_dir}`; check the path.")
    check_there(config.data, data_dir)


def check_apart(flag: str, out: Path, data_dir: str | Path | None) -> None:
    """Checks that results do not go among the data.

    Raises:
        ValueError: They would, and could replace a file of captions or pass for one.
    """
    if data_dir is not None and out.resolve() == Path(data_dir).resolve():
        expected = "a folder other than the data's, where results could replace its captions"
        raise invalid_value(flag, expected, str(out))


def resolve(config: RunConfig, run_dir: Path, data_dir: Path | None) -> RunConfig:
    """Checks what a configuration names, before data is read; decides the precision.

    Raises:
        ValueError: There is no such data folder, weights file, or run of `--init-from`.
    """
    check_data_dir(config, data_dir)
    if not RunFolder(run_dir).has_checkpoint():  # with one, the files may be gone
        check_init_from(config)
        for file in weights_files(config.encoder.weights) if config.init_from is None else ():
            if file not in ("imagenet", "none") and not Path(file).is_file():
                got = f"{file}, which does not exist"
                raise invalid_value("--encoder.weights", "imagenet or a weights file", got, "key")
    if config.fit.precision == "auto":
        config = replaced(config, fit={"precision": _precision_of_device()})
    return config


def _precision_of_device() -> str:
    """Returns bfloat16 if all GPUs, or without one the processor, multiply matrices of it."""
    with loading():
        import tensorflow as tf
    gpus = tf.config.list_physical_devices("GPU")
    details = map(tf.config.experimental.get_device_details, gpus)
    fast = bool(gpus) and all(each.get("compute_capability", (0, 0)) >= (8, 0) for each in details)
    if not gpus:
        with contextlib.suppress(OSError):
            fast = "amx_bf16" in Path("/proc/cpuinfo").read_text()
    print(f"Precision {'bfloat16' if fast else 'float32'}, by this machine's device.")
    return "bfloat16" if fast else "float32"
