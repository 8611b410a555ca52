"""A run's folder: whose it is, and what it was made from.

One configuration and one process own it. A run that is resumed must have the same data and
teachers, wherever they are now. A name such as `flickr8k_soft`, of `--init-from`, means the
captioner that ships, or a folder, depending on where the command was typed: the record tells which
it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import filelock

from sat_tf.inference.run_folder import RunFolder, read_average, read_object, read_vocabulary
from sat_tf.text.vocabulary import Vocabulary
from sat_tf.util.errors import RunError
from sat_tf.util.fields import to_dict
from sat_tf.util.files import NO_LOCKS, write_all
from training.data.captions import Amount
from training.data.dataset import Dataset
from training.inputs import BOXES, PREDICTIONS, Contents, Data, Inputs, Origin
from training.run.checkpoints import another
from training.run.strategy import is_chief, on_chief

_TEACHERS = {
    BOXES: ("boxes", "--attention.teacher"),
    PREDICTIONS: ("predictions of other captioners", "--fit.predictions"),
}
_UNFINISHED = ".*.tmp"  # left behind by `sat_tf.util.files` when it is killed


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
            f"folder with `--run-dir`; `--init-from {shlex.quote(str(folder))}` starts from its "
            "weights."
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
                f"Choose {another(folder)}."
            )
        # The first checkpoint is older than the first weights, so somebody has removed it.
        if folder.best_weights.exists() and not folder.has_checkpoint():
            raise RunError(
                f"{folder} has trained weights but no checkpoint to resume from; training from "
                f"the start would overwrite them. Choose {another(folder)}."
            )
    elif folder.path.exists() and _is_foreign(folder):
        raise RunError(
            f"{folder} is not empty and not a run: it has no {folder.config.name}. "
            "Choose another folder with `--run-dir`."
        )


def claim(
    run_dir: Path,
    config_text: str,
    init_from: str | None = None,
    records: Mapping[Path, Any] | None = None,
) -> None:
    """Makes a folder the run's own, once its data and its model are known to load.

    Args:
        run_dir: The folder, after `check_run_dir`.
        config_text: Content of config.json.
        init_from: The run that it starts from, if any.
        records: Path -> content of other files, as `files.write_all` takes them.
    """
    folder = RunFolder(run_dir)
    folder.path.mkdir(parents=True, exist_ok=True)
    for unfinished in folder.path.rglob(_UNFINISHED):
        unfinished.unlink()
    # The configuration comes first: a process killed after it finds its own folder.
    files: dict[Path, Any] = {folder.config: config_text + "\n"}
    # A run that is resumed took its weights long ago; from here, the name may lead elsewhere.
    if init_from is not None and not folder.has_checkpoint():
        files[folder.origins] = origins([init_from])
    write_all(files | dict(records or {}))


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
    if _is_foreign(folder) and list(read_average(run_dir).items()) != list(shares.items()):
        raise RunError(
            f"{run_dir} is not empty and does not hold this average. Choose another folder with "
            "`--run-dir`."
        )
    files = {folder.average: shares, folder.origins: origins(shares), folder.config: config + "\n"}
    # What another system than a captioner learned from is known by a digest.
    digests = template.path.glob("*.sha256")
    for source in (template.vocabulary, template.data, template.data_dir, *digests):
        if source.exists():
            files[folder.path / source.name] = source.read_bytes()
    write_all(files)


def _is_foreign(folder: RunFolder) -> bool:
    """Returns whether a folder holds anything but the remains of a start."""
    return any(
        path.name != folder.lock.name and not path.match(_UNFINISHED)
        for path in folder.path.iterdir()
    )


def _first_difference(existing: dict, wanted: dict, prefix: str = "") -> str:
    # Runs of two systems share their first key, the recipe, and differ in it.
    for key, value in existing.items():
        if value == wanted[key]:
            continue
        if isinstance(value, dict):
            return _first_difference(value, wanted[key], f"{prefix}{key}.")
        return f"`{prefix}{key}` is {value!r} there and {wanted[key]!r} here"
    return "nothing differs"


# What it was made from.


@on_chief
def begin_run(
    folder: RunFolder,
    config_text: str,
    origin: Origin | None,
    data: Data,
    inputs: Inputs,
    dataset: Dataset,
    data_dir: Path | None,
) -> None:
    """Makes a folder the run's own, and records what it learns from.

    Args:
        folder: The run's folder.
        config_text: Content of config.json.
        origin: The captioner that the run starts from, if any.
        data: The splits.
        inputs: Their inputs, and what teaches beside the captions.
        dataset: The data set that the splits are of, to be written down.
        data_dir: The user's copy of it; None for drawn data.

    Raises:
        RunError: The run that is resumed there has learned from something else.
    """
    vocabulary = data.vocabulary
    check_data(folder, vocabulary, inputs.contents)
    unreadable = inputs.train.known
    amount = dataclasses.replace(data.amount, images=len(data.train) - len(unreadable))
    records = data_records(folder, vocabulary, inputs.contents, amount)
    records |= {folder.skipped(split): why for split, why in inputs.unusable.items() if why}
    records |= {} if data_dir is None else {folder.data_dir: f"{data_dir.absolute()}\n"}
    for known in (folder.familiarity, folder.confidence):  # of its limits, with earlier weights
        known.unlink(missing_ok=True)
    claim(folder.path, config_text, origin and origin.name, records)
    dataset.write(folder.dataset)
    if data.config.name != "scenes" and not folder.contact_sheet.exists():
        from training.data.contact_sheet import write_contact_sheet

        write_contact_sheet(folder.contact_sheet, data.train, data.config.language)


def check_data(folder: RunFolder, vocabulary: Vocabulary, contents: Mapping[str, Contents]) -> None:
    """Checks that a run that is resumed uses the data it was started with.

    Raises:
        RunError: The vocabulary, the images or captions, or the readable images have changed.
    """
    path = folder.vocabulary
    if path.exists() and read_vocabulary(folder.path) != vocabulary:
        raise RunError(
            f"{folder} belongs to a run on other data: the words of the training captions differ "
            f"from {path}. Give it its own `--data-dir`, or choose {another(folder)}."
        )
    known = _read_contents(folder)
    for teacher in sorted(set(_TEACHERS) & (set(known) - set(contents))):
        name, flag = _TEACHERS[teacher]
        raise RunError(
            f"The run in {folder} was started with {name}: give the same `{flag}`, or choose "
            "another `--run-dir`."
        )
    for split, found in contents.items():
        _check_same(folder, split, known.get(split, found), found)


def data_records(
    folder: RunFolder,
    vocabulary: Vocabulary,
    contents: Mapping[str, Contents],
    amount: Amount | None = None,
) -> dict[Path, Any]:
    """Returns what `check_data` compares, and how much data there is, by the paths of the files."""
    values = {split: dataclasses.asdict(found) for split, found in contents.items()}
    values["vocabulary"] = dataclasses.asdict(Contents(vocabulary.fingerprint()))
    values |= {} if amount is None else {"amount": dataclasses.asdict(amount)}
    return {folder.vocabulary: vocabulary.to_json() + "\n", folder.data: values}


def recorded_teachers(folder: RunFolder) -> tuple[str, ...]:
    """Returns the teachers of the captioners that a run learned from, if it recorded them."""
    predictions = _read_contents(folder).get(PREDICTIONS)
    return () if predictions is None else predictions.teachers


def _read_contents(folder: RunFolder) -> dict[str, Contents]:
    """Reads the recorded contents; none in a new folder."""
    try:
        values = json.loads(folder.data.read_text("utf-8"))
        return {
            split: Contents(
                found["fingerprint"], tuple(found["unreadable"]), tuple(found.get("teachers", ()))
            )
            for split, found in values.items()
            if split != "amount"
        }
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{folder.data} is damaged: {error!r}. Choose another `--run-dir`."
        raise RunError(message) from error


def _check_same(folder: RunFolder, split: str, known: Contents, found: Contents) -> None:
    owner = "the training split" if split in _TEACHERS else f"the {split} split"
    where = f"{owner} when the run in {folder} was started"
    if found.fingerprint != known.fingerprint:
        what, given = "images or captions", "the run its own `--data-dir`"
        if split in _TEACHERS:
            what, flag = _TEACHERS[split]
            given = f"the same `{flag}`"
        raise RunError(
            f"The {what} are not those of {where}: expected the fingerprint "
            f"{known.fingerprint[:12]}..., got {found.fingerprint[:12]}... Give {given}, or "
            f"choose {another(folder)}."
        )
    lost = set(found.unreadable) - set(known.unreadable)
    back = set(known.unreadable) - set(found.unreadable)
    for names, change in (
        (lost, "cannot be read, but could in"),
        (back, "can be read, but not in"),
    ):
        if names:
            raise RunError(
                f"{len(names)} of the images {change} {where}, such as {min(names)!r}. Restore "
                "the images, or choose another `--run-dir`."
            )


def origins(names: Iterable[str]) -> dict[str, str]:
    """Returns where each name leads, to be recorded when the weights come from there."""
    from sat_tf.inference import published

    return {name: str(published.locate(name).resolve()) for name in names}


def recorded_origins(folder: RunFolder) -> dict[str, str]:
    """Returns name -> folder; empty if nothing was recorded.

    Raises:
        RunError: The record is damaged.
    """
    if not folder.origins.exists():
        return {}
    found = read_object(folder.origins)
    if not all(isinstance(path, str) for path in found.values()):
        raise RunError(f"Cannot read {folder.origins}: expected texts, got {found!r}.")
    return found
