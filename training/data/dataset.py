"""The data of a run, written down once: `RUN/dataset.jsonl`.

The first line says how the data was read, each further line is an image of a split: its name,
captions and group, its file if that has another name, and the SHA-256 of that; or why it is left
out. Each line ends with a check of all lines so far, by which one that was edited is known.
Layouts of caption files end here: a run that is resumed, its evaluation and whoever wants to know
what was read use this file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
import weakref
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

from sat_tf.inference.run_folder import RunFolder
from sat_tf.util.errors import RunError
from sat_tf.util.files import sha256_of, sync
from sat_tf.util.text_tables import counted
from training.data.config import DataConfig
from training.data.examples import DataError, Example, Split, StoredImage
from training.data.image_files import identify
from training.data.readers import Source

_ANEW = "A run with another `--run-dir` reads the data anew."


class Lines(Sequence[Example]):
    """Examples whose images are files, each kept as a line of a file, read when it is asked for.

    Args:
        file: Has the lines: a record, or a temporary file that becomes one. Closed with the last
            use of these examples.
        base: Folder that names of files are relative to.
    """

    def __init__(self, file: BinaryIO, base: Path) -> None:
        self._file, self._base = file, base
        self._starts, self._sizes = array("q"), array("i")
        weakref.finalize(self, file.close)

    def add(self, start: int, size: int) -> None:
        """Adds an example by the place of its line."""
        self._starts.append(start)
        self._sizes.append(size)

    def line(self, index: int) -> bytes:
        """Reads the line of an example."""
        return os.pread(self._file.fileno(), self._sizes[index], self._starts[index])

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int | slice) -> Example | tuple[Example, ...]:
        if isinstance(index, slice):
            return tuple(self[one] for one in range(len(self))[index])
        index = range(len(self))[index]
        try:
            return _example(_value(self.line(index)), self._base)
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(
                f"{self._file.name} was edited while it was in use: image {index + 1} of a split "
                f"is not where it was. {_ANEW}"
            ) from error


class Dataset:
    """The splits of a run's data, which it can write down.

    Args:
        splits: Train and dev; test too, if it is to be written.
        files: The caption files and lists that were read.
        data_dir: The user's copy of the data set; names of files are relative to it.
        recorded: The splits were read from the record of the run.
    """

    def __init__(
        self,
        splits: Mapping[str, Split],
        files: Sequence[Path],
        data_dir: Path | None,
        recorded: bool,
    ) -> None:
        self._splits, self._files, self._recorded = splits, files, recorded
        self._base = None if data_dir is None else Path(data_dir)

    @classmethod
    def open(
        cls, data: DataConfig, data_dir: Path | None, cache_dir: Path, record: Path | None = None
    ) -> Self:
        """Reads the data of a run by its record, or else in the layout that it has.

        Args:
            data: The data set and how to read it.
            data_dir: Where it is.
            cache_dir: Keeps the digests of image files.
            record: The record file; it need not be there.

        Raises:
            DataError: The record is damaged, or of other files; or the data cannot be used.
        """
        load, files, recorded = _opened(data, data_dir, record)
        splits = {name: load(name) for name in ("train", "dev")}
        if recorded:
            for split in splits.values():
                if changed := _changed_images(record, split, cache_dir):
                    raise DataError(f"{changed} Restore them; or {_ANEW[0].lower()}{_ANEW[1:]}")
            return cls(splits, files, data_dir, recorded)
        if data.name == "folder":
            with contextlib.suppress(DataError):
                splits["test"] = load("test")
        splits = {name: _identified(split, data_dir, cache_dir) for name, split in splits.items()}
        return cls(splits, files, data_dir, recorded)

    def split(self, name: str) -> Split:
        """Returns a split, with the SHA-256 of its image files."""
        return self._splits[name]

    def write(self, path: Path) -> None:
        """Writes the record file, unless this data set was read from it."""
        if self._recorded:
            return
        draft = path.with_name(f".{path.name}.tmp")
        with draft.open("wb") as file:
            file.writelines(_checked(self._lines()))
        sync(draft)
        os.replace(draft, path)

    def _lines(self) -> Iterator[bytes]:
        splits, base = self._splits, self._base
        in_files = all(isinstance(split.examples, Lines) for split in splits.values())
        files = [path for path in self._files if path.is_file()] if in_files else []
        read = {_relative(path, base): sha256_of(path) for path in files}
        kept = ("blank_captions", "notes", "uncaptioned", "held_out")
        counts = {
            name: {"images": len(split), "left_out": len(split.skipped)}
            | {key: getattr(split, key) for key in kept}
            for name, split in splits.items()
        }
        yield _line({"in_files": in_files, "read": read, "splits": counts})
        for name, split in splits.items():
            if isinstance(split.examples, Lines):
                yield from map(split.examples.line, range(len(split)))
            else:
                for one in split.examples:
                    yield _line(_record(one, name, base))
            numbers = {image_id: number for number, image_id in split.skipped_identifiers.items()}
            for image_id, reason in split.skipped:
                number = {"id": numbers[image_id]} if image_id in numbers else {}
                yield _line({"image": image_id, "split": name, "left_out": reason} | number)


def read_split(
    data: DataConfig,
    name: str,
    data_dir: Path | None,
    cache_dir: Path,
    record: Path | None = None,
) -> Split:
    """Reads one split, with the SHA-256 of its image files, for an evaluation.

    Data that changed since the record was written is read anew, with a note.

    Raises:
        DataError: There is no such split, the record is damaged, or the data cannot be used.
    """
    load, _, recorded = _opened(data, data_dir, record, may_change=True)
    split = load(name)
    if recorded and (changed := _changed_images(record, split, cache_dir)):
        print(f"Note: {changed}")
    return _identified(split, data_dir, cache_dir)


def _opened(
    data: DataConfig, data_dir: Path | None, record: Path | None, may_change: bool = False
) -> tuple[Callable[[str], Split], Sequence[Path], bool]:
    """Returns what loads a split, the files that are read, and whether a record is."""
    if record is not None and record.is_file():
        header, base = read_header(record), Path(data_dir or "")
        try:
            check_unchanged(record, base, header["read"])
        except DataError as error:
            if not may_change:
                raise
            print(f"Note: {str(error).removesuffix(_ANEW)}The data is read anew.")
            header["in_files"] = False
        if header["in_files"]:
            splits = read_splits(record, header, base)

            def load(name: str) -> Split:
                # That there is no such split is told by the layout.
                return splits[name] if name in splits else Source(data, data_dir).split(name)

            return load, [base / name for name in header["read"]], True
    source = Source(data, data_dir)
    return source.split, source.files, False


def _identified(split: Split, data_dir: Path | None, cache_dir: Path) -> Split:
    """Returns a split with the digests of its images, if all of them are files."""
    paths = [one.image for one in split.examples if isinstance(one.image, Path)]
    if len(paths) < len(split):
        return split
    base, found = Path(data_dir or ""), identify(paths, cache_dir)
    file = tempfile.TemporaryFile()  # noqa: SIM115 - `Lines` closes it
    lines = Lines(file, base)
    for one, digest in zip(split.examples, found, strict=True):
        one = dataclasses.replace(one, sha256=digest)
        start = file.tell()
        lines.add(start, file.write(_line(_record(one, split.name, base))))
    file.flush()
    return dataclasses.replace(split, examples=lines)


def _record(example: Example, split: str, base: Path | None) -> dict[str, Any]:
    record: dict[str, Any] = {"image": example.image_id, "split": split}
    record["captions"] = example.captions
    if example.identifier is not None:
        record["id"] = example.identifier
    if example.group is not None:
        record["group"] = example.group
    if isinstance(example.image, Path):
        file = _relative(example.image, base)
        record |= {"file": file} if file != example.image_id else {}
    elif isinstance(example.image, StoredImage):
        record["stored"] = example.image.stamp
    if example.sha256 is not None:
        record["sha256"] = example.sha256
    return record


def _example(record: Mapping[str, Any], base: Path) -> Example:
    name, captions = record["image"], tuple(record["captions"])
    return Example(
        name,
        base / record.get("file", name),
        captions,
        group=record.get("group"),
        identifier=record.get("id"),
        sha256=record.get("sha256"),
    )


def _relative(path: Path, base: Path | None) -> str:
    path = Path(path).absolute()
    if base is not None and path.is_relative_to(base.absolute()):
        path = path.relative_to(base.absolute())
    return path.as_posix()


def _line(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, ensure_ascii=False) + "\n").encode("utf-8", "surrogateescape")


def _value(line: bytes) -> Any:
    return json.loads(line.decode("utf-8", "surrogateescape"))


def _checked(lines: Iterable[bytes]) -> Iterator[bytes]:
    check = 0
    for line in lines:
        content = line.removesuffix(b"}\n")
        check = zlib.crc32(content, check)
        yield content + _check_of(check)


def _check_of(check: int) -> bytes:
    return b', "check": "%08x"}\n' % check


def _read_lines(path: Path) -> Iterator[bytes]:
    """Yields the lines of a record file, their checks among the values.

    Raises:
        DataError: A line is not as it was written.
    """
    check = 0
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            content = line[: -len(_check_of(0))]
            check = zlib.crc32(content, check)
            if line != content + _check_of(check):
                raise DataError(
                    f"{path}, line {number} is not as it was written: it was edited or cut short, "
                    f"or is of another version. {_ANEW}"
                )
            yield line


def read_header(path: Path) -> dict[str, Any]:
    """Reads the first line of a record file.

    Raises:
        DataError: It is not as it was written.
    """
    for line in _read_lines(path):
        return _value(line)
    raise DataError(f"{path} is empty. {_ANEW}")


def read_splits(path: Path, header: Mapping[str, Any], base: Path) -> dict[str, Split]:
    """Reads the splits of a record file whose images are in files below `base`.

    Raises:
        DataError: A line is not as it was written, or lines are missing.
    """
    examples = {name: Lines(path.open("rb"), base) for name in header["splits"]}
    skipped: dict[str, list[tuple[str, str]]] = {name: [] for name in header["splits"]}
    identifiers: dict[str, dict[str, str]] = {name: {} for name in header["splits"]}
    end = 0
    for line in _read_lines(path):
        start, end = end, end + len(line)
        if not start:
            continue  # the header
        record = _value(line)
        split = record["split"]
        if "left_out" in record:
            skipped[split].append((record["image"], record["left_out"]))
            if "id" in record:
                identifiers[split][record["id"]] = record["image"]
        else:
            examples[split].add(start, len(line))
    splits = {}
    for name, facts in header["splits"].items():
        found = len(examples[name]), len(skipped[name])
        if found != (facts["images"], facts["left_out"]):
            raise DataError(
                f"{path} is not whole: expected {facts['images']} images of the {name} split and "
                f"{facts['left_out']} that are left out, got {found[0]} and {found[1]}. {_ANEW}"
            )
        listed = (examples[name], tuple(skipped[name]), facts["blank_captions"])
        told = (tuple(facts["uncaptioned"]), tuple(facts["notes"]))
        splits[name] = Split(name, *listed, *told, identifiers[name], facts["held_out"])
    return splits


def check_unchanged(path: Path, base: Path, read: Mapping[str, str]) -> None:
    """Checks that caption files are those that a record file was made of.

    Raises:
        DataError: One is gone or has changed.
    """
    for name, expected in read.items():
        file = base / name
        if not file.is_file():
            raise DataError(f"{file}, which {path} was made of, is gone. {_ANEW}")
        if sha256_of(file) != expected:
            raise DataError(f"{file} has changed since {path} was made of it. {_ANEW}")


def _changed_images(record: Path, split: Split, cache_dir: Path) -> str:
    """Returns a sentence if image files are not those of a record, else an empty string."""
    found = identify((one.image for one in split.examples), cache_dir)
    changed = [
        one.image_id
        for one, now in zip(split.examples, found, strict=True)
        if one.sha256 is not None and now != one.sha256
    ]
    if not changed:
        return ""
    return (
        f"{counted(len(changed), 'image')} of the {split.name} split changed or vanished since "
        f"{record} was written, such as {changed[0]}."
    )


def read_data_dir(folder: RunFolder) -> Path | None:
    """Returns where the data was when the run was trained; None if it is no longer there."""
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
