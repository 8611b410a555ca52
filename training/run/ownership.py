"""Checks that a run folder belongs to this configuration and data, and locks it."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import filelock

from sat_tf.inference.run_folder import RunFolder, read_object, read_vocabulary
from sat_tf.text.vocabulary import Vocabulary
from sat_tf.util.errors import RunError
from sat_tf.util.fields import flat, to_dict
from sat_tf.util.files import write_all
from training.data.inputs import BOXES, PREDICTIONS, Contents
from training.run.checkpoints import another
from training.run.strategy import is_chief, on_chief

_FLAGS = {BOXES: "--attention.teacher", PREDICTIONS: "--fit.predictions"}
_UNFINISHED = ".*.tmp"  # left behind by `sat_tf.util.files` when it is killed


@contextlib.contextmanager
def exclusive_lock(run_dir: Path) -> Iterator[None]:
    """Keeps other processes out of a run's folder, which it makes if there is none.

    The system releases the lock however the process ends; of several workers the chief holds it.

    Raises:
        RunError: Another process trains in it.
    """
    if not is_chief():
        yield
        return
    run_dir.mkdir(parents=True, exist_ok=True)
    # filelock's fallback, a lock that is the file itself, would outlive a killed process.
    lock = filelock.FileLock(RunFolder(run_dir).lock, timeout=0, fallback_to_soft=False)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise RunError(
            f"{run_dir} is in use: another process trains in it. Wait until it has ended, or "
            "choose another folder with `--run-dir`."
        ) from error
    try:
        yield
    finally:
        if not RunFolder(run_dir).config.exists():  # the run could not start
            RunFolder(run_dir).lock.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # it has other files
                run_dir.rmdir()
        lock.release()


@on_chief
def check_run_dir(run_dir: Path, config: Any, read_config: Callable[[Path], Any]) -> None:
    """Checks that a run's folder is free, or belongs to the run's configuration.

    Args:
        run_dir: The folder.
        config: The run's configuration; its `resumed_as` takes over changes that are allowed.
        read_config: Reads that of a folder; a ValueError names a fault.

    Raises:
        RunError: It holds something else, the run of another configuration (the message
            names the first key that differs), or weights without their checkpoint.
    """
    folder = RunFolder(run_dir)
    if not folder.config.exists():
        check_free(folder)
        return
    existing = read_config(folder.path)
    resumed = existing.resumed_as(config)
    if resumed != config:
        there, here = flat(to_dict(resumed)), flat(to_dict(config))
        # Runs of two systems share their first key, the recipe, and differ in it.
        key = next(key for key in there if there[key] != here.get(key))
        raise RunError(
            f"{folder} belongs to a run with another configuration: `{key}` is {there[key]!r} "
            f"there and {here.get(key)!r} here. Choose {another(folder)}."
        )
    # The first checkpoint is older than the first weights, so somebody has removed it.
    if folder.best_weights.exists() and not folder.has_checkpoint():
        raise RunError(
            f"{folder} has trained weights but no checkpoint to resume from; training from "
            f"the start would overwrite them. Choose {another(folder)}."
        )
    if config.fit.epochs > existing.fit.epochs and config.optimizer.schedule == "cosine":
        warnings.warn(
            f"{existing.fit.epochs} epochs become {config.fit.epochs}: the learning rate, which "
            "fell to 0, jumps to the cosine over all of them. For a schedule of its own, start a "
            f"new run with `--init-from {shlex.quote(str(folder))}`.",
            stacklevel=2,
        )


def check_free(folder: RunFolder) -> None:
    """Checks that a folder is new, or holds nothing but the remains of a start.

    Raises:
        RunError: It has other files.
    """
    for path in folder.path.iterdir() if folder.path.exists() else ():
        if path.name != folder.lock.name and not path.match(_UNFINISHED):
            raise RunError(
                f"{folder} is not empty and not a run: it has no {folder.config.name}. Choose "
                "another folder with `--run-dir`."
            )


def claim(run_dir: Path, config_text: str, records: Mapping[Path, Any] | None = None) -> None:
    """Makes a folder the run's own, once its data and its model are known to load.

    Args:
        run_dir: The folder, after `check_run_dir`.
        config_text: Content of config.json.
        records: Path -> content of other files, as `files.write_all` takes them.
    """
    folder = RunFolder(run_dir)
    folder.path.mkdir(parents=True, exist_ok=True)
    for unfinished in folder.path.rglob(_UNFINISHED):
        unfinished.unlink()
    # The configuration comes first: a process killed after it finds its own folder.
    write_all({folder.config: config_text + "\n", **(records or {})})


def data_records(
    folder: RunFolder, vocabulary: Vocabulary, contents: Mapping[str, Contents], images: int
) -> dict[Path, Any]:
    """Returns the records of a run's data, by file, after a check against those that there are.

    Args:
        folder: The run's folder.
        vocabulary: Words of the training captions.
        contents: Split or teacher -> its contents.
        images: Number of training images.

    Raises:
        RunError: The run that is resumed there has learned from other words, images, captions or
            teachers, or other images can be read.
    """
    path = folder.vocabulary
    if path.exists() and read_vocabulary(folder) != vocabulary:
        raise RunError(
            f"{folder} belongs to a run on other data: the words of the training captions differ "
            f"from {path}. Give it its own `--data-dir`, or choose {another(folder)}."
        )
    recorded = read_object(folder.data) if folder.data.exists() else {}
    for name in [name for name in recorded if name in ("train", "dev", *_FLAGS)]:
        there = Contents(recorded[name]["fingerprint"], tuple(recorded[name]["unreadable"]))
        if contents.get(name) != there:
            raise RunError(
                f"The {name} data of {folder}, or which of its images can be read, differ from "
                f"those it was started with. Restore what `{_FLAGS.get(name, '--data-dir')}` "
                f"names, or choose {another(folder)}."
            )
    values: dict[str, Any] = {name: dataclasses.asdict(one) for name, one in contents.items()}
    values |= {
        "vocabulary": {"fingerprint": vocabulary.fingerprint()},
        "amount": {"images": images},
    }
    return {path: vocabulary.to_json() + "\n", folder.data: values}
