"""Records in a run's folder of what it was made from: its data, its teachers, other runs.

A run that is resumed must have the same data and teachers, wherever they are now. A name such as
`flickr8k_soft`, of `--init-from`, means the captioner that ships, or a folder, depending on where
the command was typed: the record tells which it was.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sat_tf import published, runs
from sat_tf.errors import RunError
from sat_tf.files import write_atomically, write_json
from sat_tf.run_folder import RunFolder, read_object
from sat_tf.vocabulary import Vocabulary
from training.distributed.workers import on_chief
from training.inputs import Data, Inputs

BOXES, LOCATOR, PREDICTIONS = "boxes", "locator", "predictions"
"""Names of what teaches beside the captions, among the contents of the splits."""
_TEACHERS = {
    BOXES: "boxes",
    LOCATOR: "maps of a word locator",
    PREDICTIONS: "predictions of other captioners",
}


@dataclass(frozen=True)
class Contents:
    """Contents of a split as a run uses it.

    Attributes:
        fingerprint: `Split.fingerprint`.
        unreadable: Ids of the images that cannot be read, sorted.
        teachers: Of predictions, the teachers of the captioners that made them.
    """

    fingerprint: str
    unreadable: tuple[str, ...] = ()
    teachers: tuple[str, ...] = ()


def contents(data: Data, inputs: Inputs) -> dict[str, Contents]:
    """Returns what a run uses of each split, and what teaches beside the captions, by name."""
    found = {
        split.name: Contents(
            split.fingerprint(),
            tuple(sorted(split.examples[index].image_id for index in source.skipped)),
        )
        for split, source in inputs.of(data).items()
    }
    if inputs.targets is not None:
        name = BOXES if inputs.targets.locator is None else LOCATOR
        found[name] = Contents(inputs.targets.fingerprint())
    if inputs.predictions is not None:
        learned = inputs.predictions
        found[PREDICTIONS] = Contents(learned.fingerprint(), teachers=learned.teachers)
    return found


@on_chief
def check_data(folder: RunFolder, vocabulary: Vocabulary, contents: Mapping[str, Contents]) -> None:
    """Checks that a run that is resumed uses the data it was started with.

    Raises:
        RunError: The vocabulary, the images or captions, or the readable images have changed.
    """
    path = folder.vocabulary
    if path.exists() and runs.read_vocabulary(folder.path) != vocabulary:
        raise RunError(
            f"{folder} belongs to a run on other data: the words of the training captions differ "
            f"from {path}. Give it its own `--data-dir`, or choose another `--run-dir`."
        )
    known = _read_contents(folder)
    for teacher in sorted(set(_TEACHERS) & (set(known) - set(contents))):
        raise RunError(
            f"The run in {folder} was started with {_TEACHERS[teacher]}: give the same "
            f"`--{teacher}`, or choose another `--run-dir`."
        )
    for split, found in contents.items():
        _check_same(folder, split, known.get(split, found), found)


@on_chief
def write_data(
    folder: RunFolder,
    vocabulary: Vocabulary,
    contents: Mapping[str, Contents],
    data_dir: Path | None = None,
) -> None:
    """Records vocabulary, contents, and where the data is, for later evaluations."""
    vocabulary.save(folder.vocabulary)
    values = {split: dataclasses.asdict(found) for split, found in contents.items()}
    write_json(folder.data, values)
    if data_dir is not None:
        write_atomically(folder.data_dir, f"{data_dir.absolute()}\n")


@on_chief
def write_skipped(folder: RunFolder, data: Data, inputs: Inputs) -> None:
    """Records the images of each split that cannot be used, with reasons."""
    for split, source in inputs.of(data).items():
        if reasons := split.unusable(source.skipped):
            write_json(folder.skipped(split.name), reasons)


def supervised_by_locator(folder: RunFolder) -> bool:
    """Tells whether captions, not boxes, taught a run's attention where to look."""
    return LOCATOR in _read_contents(folder)


def recorded_teachers(folder: RunFolder) -> tuple[str, ...]:
    """Returns the teachers of the captioners that a run learned from, if it recorded them."""
    predictions = _read_contents(folder).get(PREDICTIONS)
    return () if predictions is None else predictions.teachers


def read_data_dir(folder: RunFolder) -> Path | None:
    """Returns where the data was when the run was trained; None if it is no longer there."""
    if not folder.data_dir.is_file():
        return None
    path = Path(folder.data_dir.read_text("utf-8").rstrip("\n"))
    return path if path.is_dir() else None


def common_data_dir(folders: Iterable[RunFolder]) -> Path | None:
    """Returns where the data was when runs were trained; None if none of them has it recorded.

    Raises:
        RunError: It was in different folders.
    """
    recorded = [path for folder in folders if (path := read_data_dir(folder)) is not None]
    found = dict.fromkeys(path.resolve() for path in recorded)
    if len(found) > 1:
        raise RunError(
            f"The runs were trained on data in different folders: {', '.join(map(str, found))}. "
            "Choose one with `--data-dir`."
        )
    return next(iter(found), None)


def _read_contents(folder: RunFolder) -> dict[str, Contents]:
    """Reads the recorded contents; none in a folder of a version that did not record them."""
    try:
        values = json.loads(folder.data.read_text("utf-8"))
        return {
            split: Contents(
                found["fingerprint"], tuple(found["unreadable"]), tuple(found.get("teachers", ()))
            )
            for split, found in values.items()
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
        what = _TEACHERS.get(split, "images or captions")
        given = f"the same `--{split}`" if split in _TEACHERS else "the run its own `--data-dir`"
        raise RunError(
            f"The {what} are not those of {where}: expected the fingerprint "
            f"{known.fingerprint[:12]}..., got {found.fingerprint[:12]}... Give {given}, or "
            "choose another `--run-dir`."
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


def record_origins(folder: RunFolder, names: Iterable[str]) -> None:
    """Records where each name leads, when the weights have just been taken from there."""
    write_json(folder.origins, {name: str(published.locate(name).resolve()) for name in names})


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
