"""The folder of a run: whose it is, and making it one's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sat_tf.config import CONFIG_FILE, to_dict
from sat_tf.files import write_atomically
from sat_tf.runs import RunError

T = TypeVar("T")

_UNFINISHED = ".*.tmp"  # what `write_atomically` leaves when it is killed


def check_free(config: T, run_dir: Path, read: Callable[[Path], T]) -> None:
    """See that the run's folder is free, or belongs to this configuration.

    Args:
        config: Of the run that wants it.
        run_dir: The folder.
        read: Gives the configuration of the run that has it.

    Raises:
        RunError: It belongs to another one, and the message names the first key that differs; or
            it is no run.
    """
    if (run_dir / CONFIG_FILE).exists():
        try:
            existing = read(run_dir)
        except ValueError as error:
            raise RunError(f"{error} Choose another folder with `--run-dir`.") from error
        # How often the state is kept does not change what is computed.
        kept = dataclasses.replace(existing.fit, checkpoint_steps=config.fit.checkpoint_steps)
        existing = dataclasses.replace(existing, fit=kept)
        if existing != config:
            raise RunError(
                f"{run_dir} belongs to a run with another configuration: "
                f"{_first_difference(to_dict(existing), to_dict(config))}. "
                "Choose another folder with `--run-dir`, or remove this one."
            )
    elif run_dir.exists() and any(not path.match(_UNFINISHED) for path in run_dir.iterdir()):
        raise RunError(
            f"{run_dir} is not empty and not a run: it has no {CONFIG_FILE}. "
            "Choose another folder with `--run-dir`."
        )


def claim_with(run_dir: Path, config_text: str) -> None:
    """Make the folder a run with this configuration; nothing half-written is left in it."""
    run_dir.mkdir(parents=True, exist_ok=True)
    for unfinished in run_dir.rglob(_UNFINISHED):
        unfinished.unlink()
    write_atomically(run_dir / CONFIG_FILE, config_text + "\n")


def _first_difference(existing: dict, wanted: dict, prefix: str = "") -> str:
    # Runs of two systems share their first key, the recipe, and differ in it.
    for key, value in existing.items():
        if value == wanted[key]:
            continue
        if isinstance(value, dict):
            return _first_difference(value, wanted[key], f"{prefix}{key}.")
        return f"`{prefix}{key}` is {value!r} there and {wanted[key]!r} here"
    return "nothing differs"
