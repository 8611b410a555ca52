"""Ownership of a run folder: one configuration, one process (file lock)."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import filelock

from sat_tf import runs
from sat_tf.errors import RunError
from sat_tf.fields import to_dict
from sat_tf.files import NO_LOCKS, write_atomically, write_json
from sat_tf.run_folder import RunFolder
from training.distributed.workers import is_chief, on_chief
from training.run_state.checkpoints import start_again
from training.run_state.records import record_origins

_UNFINISHED = ".*.tmp"  # left behind by `write_atomically` when it is killed


@contextlib.contextmanager
def exclusive_lock(run_dir: Path) -> Iterator[None]:
    """Keeps other processes out of a run's folder, which it makes if there is none.

    The operating system releases the lock however the process ends. A file system without locks
    gives a warning and keeps nobody out. Of several workers the chief holds it.

    Raises:
        RunError: Another process trains in it.
    """
    if not is_chief():
        yield
        return
    run_dir.mkdir(parents=True, exist_ok=True)
    # filelock's fallback, whose lock is the file itself, would outlive a killed process.
    lock = filelock.FileLock(RunFolder(run_dir).lock, timeout=0, fallback_to_soft=False)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise RunError(
            f"{run_dir} is in use: another process trains in it. Wait until it has ended, or "
            "choose another folder with `--run-dir`."
        ) from error
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        warnings.warn(
            f"{run_dir} is on a file system without locks ({error.strerror}): make sure that no "
            "other process trains in it.",
            stacklevel=3,
        )
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if [path.name for path in run_dir.iterdir()] == [RunFolder(run_dir).lock.name]:
                RunFolder(run_dir).lock.unlink()  # the run could not start
                run_dir.rmdir()
        lock.release()


@on_chief
def check_run_dir(run_dir: Path, config: Any, read_config: Callable[[Path], Any]) -> None:
    """Checks that a run's folder is free, or belongs to the run's configuration.

    Args:
        run_dir: The folder.
        config: The run's configuration, whose `resumed_as` takes over what may change.
        read_config: Reads that of a folder; a ValueError says what is wrong.

    Raises:
        RunError: It belongs to another configuration, of which the message names the first key
            that differs; its checkpoint was removed, but not its best weights; or it holds an
            average of runs, or something else.
    """
    folder = RunFolder(run_dir)
    if folder.average.exists():
        raise RunError(
            f"{folder} is an average of other runs, which cannot be resumed. Choose another "
            f"folder with `--run-dir`; `--init-from {folder}` starts from its weights."
        )
    if folder.config.exists():
        try:
            existing = read_config(folder.path)
        except ValueError as error:
            raise RunError(f"{error} Choose another folder with `--run-dir`.") from error
        existing = existing.resumed_as(config)
        if existing != config:
            raise RunError(
                f"{folder} belongs to a run with another configuration: "
                f"{_first_difference(to_dict(existing), to_dict(config))}. "
                "Choose another folder with `--run-dir`, or remove this one."
            )
        # The first checkpoint is older than the first weights, so somebody has removed it.
        if folder.best_weights.exists() and not folder.has_checkpoint():
            raise RunError(
                f"{folder} has trained weights but no checkpoint to resume from; training from "
                f"the start would overwrite them. {start_again(folder)}"
            )
    elif folder.path.exists() and _is_foreign(folder):
        raise RunError(
            f"{folder} is not empty and not a run: it has no {folder.config.name}. "
            "Choose another folder with `--run-dir`."
        )


@on_chief
def claim(run_dir: Path, config_text: str, init_from: str | None = None) -> None:
    """Makes a folder the run's own, once its data and its model are known to load.

    Args:
        run_dir: The folder, after `check_run_dir`.
        config_text: Content of config.json.
        init_from: The run that it starts from, if any.
    """
    folder = RunFolder(run_dir)
    folder.path.mkdir(parents=True, exist_ok=True)
    for unfinished in folder.path.rglob(_UNFINISHED):
        unfinished.unlink()
    # The configuration comes first: a process killed after it finds its own folder.
    write_atomically(folder.config, config_text + "\n")
    # A run that is resumed took its weights long ago; from here, the name may lead elsewhere.
    if init_from is not None and not folder.has_checkpoint():
        record_origins(folder, [init_from])


def claim_average(run_dir: Path, like: Path, config: str, shares: Mapping[str, float]) -> None:
    """Makes a folder one of averaged weights, which are still to be written.

    Args:
        run_dir: The folder: new, empty, or of the same average.
        like: The run whose files it copies but for weights and configuration.
        config: Content of its configuration.
        shares: Run -> its share.

    Raises:
        RunError: It is in use for something else.
    """
    folder, template = RunFolder(run_dir), RunFolder(like)
    if _is_foreign(folder) and list(runs.read_average(run_dir).items()) != list(shares.items()):
        raise RunError(
            f"{run_dir} is not empty and does not hold this average. Choose another folder with "
            "`--run-dir`."
        )
    write_json(folder.average, shares)
    record_origins(folder, shares)
    write_atomically(folder.config, config + "\n")
    for name in ("vocabulary", "digits", "data", "data_dir"):
        source: Path = getattr(template, name)
        if source.exists():
            write_atomically(getattr(folder, name), source.read_bytes())


def _is_foreign(folder: RunFolder) -> bool:
    """Returns whether a folder holds anything but the remains of a start."""
    return any(
        path.name != folder.lock.name and not path.match(_UNFINISHED)
        for path in folder.path.iterdir()
    )


def _first_difference(existing: dict, wanted: dict, prefix: str = "") -> str:
    # Runs of two digit systems share their first key, the recipe, and differ in it.
    for key, value in existing.items():
        if value == wanted[key]:
            continue
        if isinstance(value, dict):
            return _first_difference(value, wanted[key], f"{prefix}{key}.")
        return f"`{prefix}{key}` is {value!r} there and {wanted[key]!r} here"
    return "nothing differs"
