"""Checks that a run folder belongs to this configuration and data, and records what made it.

A run that is resumed must have the same data and teachers, wherever they are now. A name such as
`flickr8k_soft`, of `--init-from`, means a pretrained captioner or a folder, depending on where the
command was typed: the record says which it was.
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
from sat_tf.util.fields import flat, to_dict
from sat_tf.util.files import NO_LOCKS, write_all
from training.data.dataset import Dataset
from training.data.inputs import BOXES, PREDICTIONS, Contents, Data, Inputs
from training.run.checkpoints import another
from training.run.config import read_run_config
from training.run.strategy import is_chief, on_chief

_FLAGS = {BOXES: "--attention.teacher", PREDICTIONS: "--fit.predictions"}
_UNFINISHED = ".*.tmp"  # left behind by `sat_tf.util.files` when it is killed


@contextlib.contextmanager
def exclusive_lock(run_dir: Path) -> Iterator[None]:
    """Keeps other processes out of a run's folder, which it makes if there is none.

    The operating system releases the lock however the process ends. Of several workers the chief
    holds it.

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
        raise RunError(f"{folder} is an average of other runs: choose {another(folder)}.")
    if not folder.config.exists():
        if folder.path.exists() and _is_foreign(folder):
            raise RunError(
                f"{folder} is not empty and not a run: it has no {folder.config.name}. "
                "Choose another folder with `--run-dir`."
            )
        return
    try:
        existing = read_config(folder.path)
    except ValueError as error:
        raise RunError(f"{error} Choose another folder with `--run-dir`.") from error
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
            f"{existing.fit.epochs} epochs become {config.fit.epochs}: the learning rate jumps to "
            "the cosine over all of them, up from 0 if the run had ended. For a schedule of its "
            f"own, start a new run with `--init-from {shlex.quote(str(folder))}`.",
            stacklevel=2,
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
        files[folder.origins] = _origins([init_from])
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
    files = {folder.average: shares, folder.origins: _origins(shares), folder.config: f"{config}\n"}
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


# What it was made from.


@on_chief
def begin_run(
    folder: RunFolder,
    config_text: str,
    init_from: str | None,
    data: Data,
    inputs: Inputs,
    dataset: Dataset,
    data_dir: Path | None,
) -> None:
    """Makes a folder the run's own, and records its data.

    Args:
        folder: The run's folder.
        config_text: Content of config.json.
        init_from: The captioner that the run starts from, if any.
        data: The splits.
        inputs: Their inputs, and what teaches beside the captions.
        dataset: The data set that the splits are of, to be written down.
        data_dir: The user's copy of it; None for drawn data.

    Raises:
        RunError: The run that is resumed there has learned from something else.
    """
    check_data(folder, data.vocabulary, inputs.contents)
    images = len(data.train) - len(inputs.train.known)
    records = data_records(folder, data.vocabulary, inputs.contents, images)
    records |= {folder.skipped(split): why for split, why in inputs.unusable.items() if why}
    records |= {} if data_dir is None else {folder.data_dir: f"{data_dir.absolute()}\n"}
    for known in (folder.familiarity, folder.confidence):  # of its limits, with earlier weights
        known.unlink(missing_ok=True)
    claim(folder.path, config_text, init_from, records)
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
    for name, there in _read_contents(folder).items():
        here = contents.get(name)
        if here == there or (here is None and name not in _FLAGS):
            continue
        restored = f"what `{_FLAGS.get(name, '--data-dir')}` names"
        if here and here.fingerprint == there.fingerprint:
            image = min({*there.unreadable} ^ {*here.unreadable})
            restored = f"the images, of which others can be read now, such as {image!r}"
        raise RunError(
            f"The {name} data of {folder} differ from those it was started with. Restore "
            f"{restored}, or choose {another(folder)}."
        )


def data_records(
    folder: RunFolder,
    vocabulary: Vocabulary,
    contents: Mapping[str, Contents],
    images: int | None = None,
) -> dict[Path, Any]:
    """Returns what `check_data` compares, and how many training images there are, by file."""
    values = {split: dataclasses.asdict(found) for split, found in contents.items()}
    values["vocabulary"] = dataclasses.asdict(Contents(vocabulary.fingerprint()))
    values |= {} if images is None else {"amount": {"images": images}}
    return {folder.vocabulary: vocabulary.to_json() + "\n", folder.data: values}


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


def _origins(names: Iterable[str]) -> dict[str, str]:
    from sat_tf.inference import published

    return {name: str(published.locate(name).resolve()) for name in names}


def ancestors(run_dir: Path) -> list[Path]:
    """Returns the folders of a run and of those it started from, directly or through others.

    A run starts from `--init-from`, or from the runs that it averages. The folder of one that was
    removed is named, but nothing before it is known.
    """
    from sat_tf.inference import published

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
    from sat_tf.inference import published

    try:
        return published.locate(name).resolve()
    except ValueError:
        return Path(name).resolve()


def teachers_of(run_dir: Path) -> dict[str, list[str]]:
    """Returns what taught a run beside the captions: "boxes", "captioners" or "reward".

    Under `own`, what taught it or those it started from; under `inherited`, what taught the
    captioners whose predictions it learned from.
    """
    from sat_tf.inference import published

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
        if predictions := _read_contents(RunFolder(path)).get(PREDICTIONS):
            inherited += predictions.teachers
    return {"own": list(dict.fromkeys(own)), "inherited": list(dict.fromkeys(inherited))}
