"""The captioner that `--init-from` names: its shape, and that it is there."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sat_tf.run_folder import RunFolder, read_config
from sat_tf.trained import published
from sat_tf.util.errors import RunError, invalid_value
from training.run.config import RunConfig
from training.run.recipes import RECIPES

_OWN = ("weights", "trainable", "trainable_from")


def shaped_like_origin(config: RunConfig, argv: Sequence[str], run_dir: Path | None) -> RunConfig:
    """Returns the configuration with encoder and decoder of the run of `--init-from`.

    A flag given wins over that run's image size and layer; dropout and what learns stay.

    Args:
        config: The configuration.
        argv: The command line, for the keys that are given.
        run_dir: The run's own folder; if it holds a run, it is like that, as the other may be gone.
            None for a command that trains none.

    Raises:
        ValueError: A flag contradicts the shape of the run.
    """
    try:
        begun = run_dir is not None and RunFolder(run_dir).has_checkpoint()
        origin = read_config(run_dir if begun else published.locate(config.init_from))
    except RunError:  # where it is needed, `check_init_from` says so
        return config
    given = {word.partition("=")[0][2:].replace("-", "_") for word in argv if word[:2] == "--"}
    for part in ("encoder", "decoder"):
        ours, theirs = vars(getattr(config, part)), vars(getattr(origin, part))
        taken = {k: v for k, v in theirs.items() if not k.endswith("_dropout") and k not in _OWN}
        for key in [key for key in taken if f"{part}.{key}" in given]:
            same = _plain(taken.pop(key)) == _plain(ours[key])
            if not same and (part == "decoder" or key == "name"):
                expected = f"{theirs[key]}, as in `--init-from {config.init_from}` (leave it out)"
                raise invalid_value(f"--{part}.{key}", expected, ours[key], "key")
        config = dataclasses.replace(
            config, **{part: dataclasses.replace(getattr(config, part), **taken)}
        )
    return config


def _plain(value: Any) -> str:
    return str(value).lower().replace("_", "")  # Keras' names of encoders have capitals


def check_init_from(config: RunConfig, run_dir: Path | None = None) -> None:
    """Checks that the run of `--init-from` exists before TensorFlow is loaded.

    Args:
        config: The configuration.
        run_dir: The run's own folder: with a checkpoint there, it needs the other run no longer.

    Raises:
        ValueError: The folder holds no run, and no published captioner has that name.
    """
    resumed = run_dir is not None and RunFolder(run_dir).has_checkpoint()
    if config.init_from is None or resumed:
        return
    expected, origin = "the folder of a finished run", Path(config.init_from)
    if origin.parent == Path("runs") and origin.name in RECIPES and not origin.exists():
        expected += f"; train `--recipe {origin.name}` with the same flags first"
        raise invalid_value("--init-from", expected, f"{origin}, which does not exist", "key")
    from sat_tf.trained.lite.captioner import is_export

    try:
        found = published.locate(config.init_from)
        if is_export(found):
            raise RunError(f"{found}, an export for LiteRT: name the run that it was made of")
        if not RunFolder(found).config.is_file():
            raise RunError(f"{found}, which has no {RunFolder(found).config.name}")
    except RunError as error:
        expected, got = f"{expected} or a published captioner", str(error).rstrip(".")
        raise invalid_value("--init-from", expected, got, "key") from error
