"""Whose a run's folder is: one configuration's, and one process' at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import filelock

from sat_tf import runs
from sat_tf.config import CONFIG_FILE, to_dict
from sat_tf.files import write_atomically
from sat_tf.vocabulary import Vocabulary
from training.recipes import RunConfig, read_run_config

T = TypeVar("T")

CONTENTS_FILE = "data.json"
"""In a captioner's folder: split -> `Contents`."""
LOCK_FILE = ".lock"
"""In the run's folder; the lock is the operating system's, the file itself says nothing."""
_UNFINISHED = ".*.tmp"  # what `write_atomically` leaves when it is killed
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)


@dataclass(frozen=True)
class Contents:
    """What a run uses of a split.

    Attributes:
        fingerprint: `Split.fingerprint`.
        unreadable: Ids of its pictures that cannot be read, in alphabetical order.
    """

    fingerprint: str
    unreadable: tuple[str, ...] = ()


@contextlib.contextmanager
def alone_in(run_dir: Path) -> Iterator[None]:
    """Keep other processes out of the run's folder; makes it if there is none.

    The lock ends with the process that holds it, however that dies. Where the file system knows no
    locks, a warning says so and nobody is kept out.

    Args:
        run_dir: Folder of the run.

    Raises:
        RunError: Another process trains in it.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    # The library's own way out, a lock that is a file, would outlive a killed process.
    lock = filelock.FileLock(run_dir / LOCK_FILE, timeout=0, fallback_to_soft=False)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise runs.RunError(
            f"{run_dir} is in use: another process trains in it. Wait until it has ended, or "
            "choose another folder with `--run-dir`."
        ) from error
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        warnings.warn(
            f"{run_dir} is on a file system without locks ({error.strerror}): see to it that no "
            "other process trains in it.",
            stacklevel=3,
        )
    try:
        yield
    finally:
        _leave_nothing(run_dir)
        lock.release()


def _leave_nothing(run_dir: Path) -> None:
    """Remove the folder again if the run could not start."""
    with contextlib.suppress(OSError):
        if [path.name for path in run_dir.iterdir()] == [LOCK_FILE]:
            (run_dir / LOCK_FILE).unlink()
            run_dir.rmdir()


def check_run_dir(config: RunConfig, run_dir: Path) -> None:
    """`check_free` for the run of a captioner."""
    check_free(config, run_dir, read_run_config)


def check_free(config: T, run_dir: Path, read: Callable[[Path], T]) -> None:
    """See that the run's folder is free, or belongs to this configuration.

    Args:
        config: Of the run that wants it.
        run_dir: The folder.
        read: Gives the configuration of the run that has it.

    Raises:
        RunError: It belongs to another one, and the message names the first key that differs; or
            it is no run, or an average of runs.
    """
    if (run_dir / runs.AVERAGE_FILE).exists():
        raise runs.RunError(
            f"{run_dir} is an average of other runs, which cannot be gone on with. Choose another "
            f"folder with `--run-dir`; `--init-from {run_dir}` starts from its weights."
        )
    if (run_dir / CONFIG_FILE).exists():
        try:
            existing = read(run_dir)
        except ValueError as error:
            raise runs.RunError(f"{error} Choose another folder with `--run-dir`.") from error
        # How often the state is kept does not change what is computed.
        kept = dataclasses.replace(existing.fit, checkpoint_steps=config.fit.checkpoint_steps)
        existing = dataclasses.replace(existing, fit=kept)
        if existing != config:
            raise runs.RunError(
                f"{run_dir} belongs to a run with another configuration: "
                f"{_first_difference(to_dict(existing), to_dict(config))}. "
                "Choose another folder with `--run-dir`, or remove this one."
            )
    elif run_dir.exists() and any(map(_is_foreign, run_dir.iterdir())):
        raise runs.RunError(
            f"{run_dir} is not empty and not a run: it has no {CONFIG_FILE}. "
            "Choose another folder with `--run-dir`."
        )


def _is_foreign(path: Path) -> bool:
    """Whether a file says that the folder is somebody's: not so what a start may leave behind."""
    return path.name != LOCK_FILE and not path.match(_UNFINISHED)


def claim(
    config: RunConfig, vocabulary: Vocabulary, contents: Mapping[str, Contents], run_dir: Path
) -> None:
    """Make the run's folder its own; only now, when data and encoder are known to load.

    Args:
        config: Of the run.
        vocabulary: Its words.
        contents: Split -> what the run uses of it.
        run_dir: The folder.

    Raises:
        RunError: The run was started with other data: its words, its pictures or captions, or
            which of the pictures can be read.
    """
    path = run_dir / runs.VOCABULARY_FILE
    if path.exists() and runs.read_vocabulary(run_dir) != vocabulary:
        raise runs.RunError(
            f"{run_dir} belongs to a run on other data: the words of the training captions differ "
            f"from {path}. Give it its own `--data-dir`, or choose another `--run-dir`."
        )
    known = _read_contents(run_dir)
    for split, found in contents.items():
        _check_same(run_dir, split, known.get(split, found), found)
    # First what makes the folder a run: a process killed after this line finds its own.
    claim_with(run_dir, json.dumps(to_dict(config), indent=2))
    vocabulary.save(path)
    values = {split: dataclasses.asdict(one) for split, one in contents.items()}
    text = json.dumps(values, indent=1, ensure_ascii=False)
    write_atomically(run_dir / CONTENTS_FILE, text + "\n")


def _read_contents(run_dir: Path) -> dict[str, Contents]:
    """What the run was started with; nothing for one of a version that did not keep it."""
    path = run_dir / CONTENTS_FILE
    try:
        values = json.loads(path.read_text("utf-8"))
        return {
            split: Contents(one["fingerprint"], tuple(one["unreadable"]))
            for split, one in values.items()
        }
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise runs.RunError(f"{path} is damaged: {error!r}. Choose another `--run-dir`.") from error


def _check_same(run_dir: Path, split: str, known: Contents, found: Contents) -> None:
    """See that a split is what it was when the run was started; else the run would not say so."""
    where = f"the {split} split when the run in {run_dir} was started"
    if found.fingerprint != known.fingerprint:
        raise runs.RunError(
            f"The pictures or captions are not those of {where}: expected the fingerprint "
            f"{known.fingerprint[:12]}..., got {found.fingerprint[:12]}... Give the run its own "
            "`--data-dir`, or choose another `--run-dir`."
        )
    lost = set(found.unreadable) - set(known.unreadable)
    back = set(known.unreadable) - set(found.unreadable)
    for names, what in ((lost, "cannot be read, but could in"), (back, "can be read, but not in")):
        if names:
            raise runs.RunError(
                f"{len(names)} pictures {what} {where}, such as {min(names)!r}. Put the pictures "
                "back as they were, or choose another `--run-dir`."
            )


def claim_with(run_dir: Path, config_text: str) -> None:
    """Make the folder a run with this configuration; nothing half-written is left in it."""
    run_dir.mkdir(parents=True, exist_ok=True)
    for unfinished in run_dir.rglob(_UNFINISHED):
        unfinished.unlink()
    write_atomically(run_dir / CONFIG_FILE, config_text + "\n")


def claim_average(run_dir: Path, like: Path, shares: Mapping[str, float]) -> None:
    """Make the folder one of averaged weights, which are still to be written.

    Args:
        run_dir: The folder: new, empty, or of the same average.
        like: The run whose configuration and words it has.
        shares: Run -> its share.

    Raises:
        RunError: It is in use for something else.
    """
    foreign = any(map(_is_foreign, run_dir.iterdir()))
    if foreign and list(runs.read_average(run_dir).items()) != list(shares.items()):
        raise runs.RunError(
            f"{run_dir} is not empty and not of this average. Choose another folder with "
            "`--run-dir`."
        )
    text = json.dumps(shares, indent=1, ensure_ascii=False)
    write_atomically(run_dir / runs.AVERAGE_FILE, text + "\n")
    for name in (CONFIG_FILE, runs.VOCABULARY_FILE):
        write_atomically(run_dir / name, (like / name).read_bytes())


def _first_difference(existing: dict, wanted: dict, prefix: str = "") -> str:
    # Runs of two systems share their first key, the recipe, and differ in it.
    for key, value in existing.items():
        if value == wanted[key]:
            continue
        if isinstance(value, dict):
            return _first_difference(value, wanted[key], f"{prefix}{key}.")
        return f"`{prefix}{key}` is {value!r} there and {wanted[key]!r} here"
    return "nothing differs"
