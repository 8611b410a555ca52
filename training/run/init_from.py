"""The captioner that `--init-from` names: its shape, that it is there, and what it came from."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sat_tf.inference import published
from sat_tf.inference.run_folder import RunFolder, read_average, read_config, read_object
from sat_tf.util.errors import RunError, invalid_value
from training.run.config import RunConfig, read_run_config
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
    from sat_tf.inference.litert_captioner import is_export

    try:
        found = published.locate(config.init_from)
        if is_export(found):
            raise RunError(f"{found}, an export for LiteRT: name the run that it was made of")
        if not RunFolder(found).config.is_file():
            raise RunError(f"{found}, which has no {RunFolder(found).config.name}")
    except RunError as error:
        expected, got = f"{expected} or a published captioner", str(error).rstrip(".")
        raise invalid_value("--init-from", expected, got, "key") from error


def ancestors(run_dir: Path) -> list[Path]:
    """Returns the folders of a run and of those it started from, directly or through others.

    A run starts from `--init-from`, or from the runs that it averages. The folder of one that was
    removed is named, but nothing before it is known.
    """
    found, left = [], [published.locate(run_dir).resolve()]
    while left:
        path = left.pop(0)
        if path in found:
            continue
        found.append(path)
        with contextlib.suppress(ValueError):  # it was removed
            origins = [*read_average(path)] or [read_object(RunFolder(path).config)["init_from"]]
            known = read_object(RunFolder(path).origins) if RunFolder(path).origins.exists() else {}
            left += [_located(known.get(name, name)) for name in origins if name]
    return found


def _located(name: str) -> Path:
    try:
        return published.locate(name).resolve()
    except ValueError:
        return Path(name).resolve()


def teachers_of(run_dir: Path) -> dict[str, list[str]]:
    """Returns what taught a run beside the captions: "boxes", "captioners" or "reward".

    Under `own`, what taught it or those it started from; under `inherited`, what taught the
    captioners whose predictions it learned from.
    """
    from training.run.ownership import recorded_teachers

    if published.is_published(published.locate(run_dir)):
        return published.taught_by(published.locate(run_dir))
    own, inherited = [], []
    for path in filter(Path.is_dir, reversed(ancestors(run_dir))):
        if published.is_published(path):
            recorded = published.taught_by(path)
            own += recorded["own"]
            inherited += recorded["inherited"]
            continue
        config = read_run_config(path)
        own += ["boxes"] * bool(config.attention.supervision_weight)
        own += ["captioners"] * bool(config.fit.distillation_weight)
        own += ["reward"] * (config.reward.metric != "none")
        inherited += recorded_teachers(RunFolder(path))
    return {"own": list(dict.fromkeys(own)), "inherited": list(dict.fromkeys(inherited))}
