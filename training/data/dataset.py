"""The data of a run, written down once: `RUN/dataset.jsonl`, its digest in `RUN/dataset.sha256`.

The first line says how the data was read, each further line is an image of a split: its name,
captions and group, its file if that has another name, and the SHA-256 of its content; or why it is
left out. A run that is resumed and its evaluation read this file, not the layout of captions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from sat_tf.inference.run_folder import RunFolder
from sat_tf.util.commands import counted, progress_bar
from sat_tf.util.errors import RunError
from sat_tf.util.files import sha256_of, write_atomically
from training.data.config import DataConfig
from training.data.examples import AnyImage, DataError, Example, Split, StoredImage
from training.data.readers import Source

_ANEW = "a run with another `--run-dir` reads the data anew"
_READERS = 2
_SHOWN = 10_000  # images from which on progress is shown
_KEPT = ("notes", "uncaptioned", "held_out")  # of a split


@dataclass(frozen=True)
class Dataset:
    """The splits of a run's data; their examples have the SHA-256 of their images."""

    splits: Mapping[str, Split]  # train and dev; test too, if it is to be written
    files: Sequence[Path]  # the caption files and lists that were read
    data_dir: Path | None  # the user's copy; names of files are relative to it
    recorded: bool  # the run has its record already

    @classmethod
    def open(
        cls, data: DataConfig, data_dir: Path | None, cache_dir: Path, record: Path | None = None
    ) -> Self:
        """Reads the data of a run from its record, if there is one, or in the layout that it has.

        `cache_dir` keeps the digests of image files.

        Raises:
            DataError: The record is damaged, or of other files; or the data cannot be used.
        """
        kept = Record.read(record, data_dir) if record and record.is_file() else None
        if kept and (changed := kept.changed_file()):
            raise DataError(f"{changed}; {_ANEW}.")
        if kept and kept.splits:
            splits, files = {name: kept.splits[name] for name in ("train", "dev")}, ()
        else:
            source = Source(data, data_dir)
            splits, files = {name: source.split(name) for name in ("train", "dev")}, source.files
            if data.name == "folder":
                with contextlib.suppress(DataError):
                    splits["test"] = source.split("test")
        splits = {name: _identified(split, cache_dir) for name, split in splits.items()}
        for split in splits.values() if kept else ():
            if changed := kept.changed_images(split):
                raise DataError(f"{changed}. Restore them; or {_ANEW}.")
        return cls(splits, files, data_dir, kept is not None)

    def split(self, name: str) -> Split:
        """Returns a split."""
        return self.splits[name]

    def write(self, path: Path) -> None:
        """Writes the record file and its digest, unless the run has them."""
        if self.recorded:
            return
        content = b"".join(
            (json.dumps(values, ensure_ascii=False) + "\n").encode("utf-8", "surrogateescape")
            for values in self._lines()
        )
        # The digest first: without the record, it is of none.
        write_atomically(path.with_suffix(".sha256"), f"{hashlib.sha256(content).hexdigest()}\n")
        write_atomically(path, content)

    def _lines(self) -> Iterator[Mapping[str, Any]]:
        every = (example.image for split in self.splits.values() for example in split.examples)
        in_files = all(isinstance(image, Path) for image in every)
        read = {self._relative(file): sha256_of(file) for file in self.files if file.is_file()}
        facts = {
            name: {"images": len(split), "left_out": len(split.skipped)}
            | {key: getattr(split, key) for key in _KEPT}
            for name, split in self.splits.items()
        }
        yield {"in_files": in_files, "read": read if in_files else {}, "splits": facts}
        for name, split in self.splits.items():
            numbers = {image_id: number for number, image_id in split.identifiers.items()}
            for one in split.examples:
                file = self._relative(one.image) if isinstance(one.image, Path) else one.image_id
                own_id = numbers.get(one.image_id)
                more = {"id": own_id, "group": one.group, "sha256": one.sha256}
                more["file"] = None if file == one.image_id else file
                values = {"image": one.image_id, "split": name, "captions": one.captions}
                yield values | {key: value for key, value in more.items() if value is not None}
            for image_id, reason in split.skipped:
                number = {"id": numbers[image_id]} if image_id in numbers else {}
                yield {"image": image_id, "split": name, "left_out": reason} | number

    def _relative(self, path: Path) -> str:
        path, base = path.absolute(), Path(self.data_dir or "").absolute()
        return (path.relative_to(base) if path.is_relative_to(base) else path).as_posix()


def read_split(
    data: DataConfig,
    name: str,
    data_dir: Path | None,
    cache_dir: Path,
    record: Path | None = None,
) -> Split:
    """Reads one split, with the SHA-256 of its images, for an evaluation.

    Data that changed since the record was written is read anew, with a note.

    Raises:
        DataError: The split does not exist, the record is damaged, or the data cannot be used.
    """
    kept = Record.read(record, data_dir) if record and record.is_file() else None
    changed = kept.changed_file() if kept else ""
    if changed:
        print(f"Note: {changed}. The data is read anew.")
    split = kept.splits.get(name) if kept and not changed else None
    # Without one, the layout tells that there is no such split.
    split = _identified(split or Source(data, data_dir).split(name), cache_dir)
    if kept and (changed := kept.changed_images(split)):
        print(f"Note: {changed}.")
    return split


@dataclass(frozen=True)
class Record:
    """A record file, as it was written."""

    path: Path  # the file
    base: Path  # folder that names of files are relative to
    files: Mapping[str, str]  # name of each caption file that was read -> its SHA-256
    splits: Mapping[str, Split]  # if all images are files; others are read in their layout again
    digests: Mapping[tuple[str, str], str | None]
    """Split and name of an image -> SHA-256 of its content, None if unreadable."""

    @classmethod
    def read(cls, path: Path, data_dir: Path | None) -> Self:
        """Reads a record file.

        Raises:
            DataError: It is not as it was written.
        """
        content, kept, base = path.read_bytes(), path.with_suffix(".sha256"), Path(data_dir or "")
        digest = kept.read_text("utf-8").strip() if kept.is_file() else None
        if digest != hashlib.sha256(content).hexdigest():
            raise DataError(
                f"{path} is not as it was written: it was edited or cut short, {kept.name} is "
                f"gone, or both are of another version; {_ANEW}."
            )
        lines = content.decode("utf-8", "surrogateescape").split("\n")[:-1]
        header, *entries = map(json.loads, lines)
        of_split: dict[str, list[dict[str, Any]]] = {name: [] for name in header["splits"]}
        for entry in entries:
            of_split[entry["split"]].append(entry)
        splits, digests = {}, {}
        for name, own in of_split.items():
            used = [one for one in own if "left_out" not in one]
            lost = [one for one in own if "left_out" in one]
            digests |= {(name, one["image"]): one.get("sha256") for one in used}
            facts = {key: header["splits"][name][key] for key in _KEPT}
            splits[name] = Split(
                name,
                tuple(_example(one, base) for one in used),
                tuple((one["image"], one["left_out"]) for one in lost),
                identifiers={one["id"]: one["image"] for one in own if "id" in one},
                **{k: tuple(v) if isinstance(v, list) else v for k, v in facts.items()},
            )
        return cls(path, base, header["read"], splits if header["in_files"] else {}, digests)

    def changed_file(self) -> str:
        """Says if a caption file is another one now, else nothing."""
        for name, expected in self.files.items():
            file = self.base / name
            if not file.is_file():
                return f"{file}, which {self.path} was made of, is gone"
            if sha256_of(file) != expected:
                return f"{file} has changed since {self.path} was made of it"
        return ""

    def changed_images(self, split: Split) -> str:
        """Says if images are others now, else nothing."""
        changed = [
            one.image_id
            for one in split.examples
            if self.digests.get((split.name, one.image_id)) not in (None, one.sha256)
        ]
        what = f"{counted(len(changed), 'image')} of the {split.name} split changed or vanished"
        return f"{what} since {self.path} was written, such as {changed[0]}" if changed else ""


def _example(values: Mapping[str, Any], base: Path) -> Example:
    return Example(
        values["image"],
        base / values.get("file", values["image"]),
        tuple(values["captions"]),
        group=values.get("group"),
        sha256=values.get("sha256"),
    )


def identified(examples: Sequence[Example], cache_dir: Path) -> tuple[Example, ...]:
    """Returns examples, each with the SHA-256 that its image has now, see `identify`."""
    digests = identify([one.image for one in examples], cache_dir)
    return tuple(
        one if one.sha256 == sha256 else dataclasses.replace(one, sha256=sha256)
        for one, sha256 in zip(examples, digests, strict=True)
    )


def _identified(split: Split, cache_dir: Path) -> Split:
    return dataclasses.replace(split, examples=identified(split.examples, cache_dir))


def identify(images: Sequence[AnyImage], cache_dir: Path) -> list[str | None]:
    """Computes the SHA-256 of images, reading each once.

    Results are kept in `CACHE/digests`, in a file for each folder of images, tar or Parquet
    file. That only saves time: without it, or if it cannot be written, all images are read.

    Returns:
        The digests (hexadecimal); None for an image that cannot be read, or is in no file.
    """
    homes: dict[str, list[int]] = defaultdict(list)  # folder, or file that holds images -> places
    for place, image in enumerate(images):
        if isinstance(image, Path):
            homes[os.path.split(image)[0]].append(place)
        elif isinstance(image, StoredImage) and image.container is not None:
            homes[str(image.container)].append(place)
    found: list[str | None] = [None] * len(images)
    for home, places in homes.items():
        name = hashlib.sha256(os.fsencode(os.path.realpath(home))).hexdigest()[:16]
        kept, known = cache_dir / "digests" / f"{name}.json", {}
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            known = dict(json.loads(kept.read_bytes()))  # name -> state and digest
        new: dict[int, tuple[str, list[int]]] = {}
        for place in places:
            image = images[place]
            stored = isinstance(image, StoredImage)
            name, state = (image.stamp, _state(home)) if stored else (image.name, _state(image))
            match known.get(name):
                case [*before, str(sha256)] if before == state:
                    found[place] = sha256
                case _ if state is not None:
                    new[place] = name, state
        with (
            progress_bar(len(new), "Reading images", "images", len(new) > _SHOWN) as bar,
            ThreadPoolExecutor(_READERS) as pool,
        ):
            digests = pool.map(_digest, (images[place] for place in new))
            for (place, (name, state)), sha256 in zip(new.items(), digests, strict=True):
                found[place] = sha256
                known |= {name: [*state, sha256]} if sha256 else {}
                bar.update(1)
        if new:
            with contextlib.suppress(OSError):
                kept.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(kept, json.dumps(known))
    return found


def _state(path: str | Path) -> list[int] | None:
    """Returns size, modification and change time in nanoseconds, and inode; None without a file.

    `cp -p` and `rsync -t` set the modification time, by which alone a repaired copy could pass for
    the broken file; nothing sets the change time. Two files may have all times in common, and one
    can take the other's name, or a link that leads to it be set to the other.
    """
    with contextlib.suppress(OSError):
        status = os.stat(path)
        if stat.S_ISREG(status.st_mode):  # a pipe would be waited for
            return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    return None


def _digest(image: Path | StoredImage) -> str | None:
    try:
        return hashlib.sha256(image.read_bytes()).hexdigest()
    except (OSError, ValueError):
        return None


def read_data_dir(folder: RunFolder) -> Path | None:
    """Returns where the data was when the run was trained; None if it has gone."""
    if not folder.data_dir.is_file():
        return None
    path = Path(folder.data_dir.read_text("utf-8").rstrip("\n"))
    return path if path.is_dir() else None


def recorded_data(run_dir: Path | None, data_dir: Path | None) -> Path | None:
    """Returns the record of a run's data, if it was read from this folder; else None."""
    if run_dir is None or data_dir is None:
        return None
    folder = RunFolder(run_dir)
    recorded = read_data_dir(folder)
    return folder.dataset if recorded is not None and recorded.samefile(data_dir) else None


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
