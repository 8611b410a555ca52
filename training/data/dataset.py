"""The data of a run, written down once: `RUN/dataset.jsonl`.

The first line says how the data was read, each further line is an image of a split: its name,
captions and group, its file if that has another name, and the SHA-256 of that; or why it is left
out. Layouts of caption files end here: a run that is resumed, its evaluation and whoever wants to
know what was read use this file.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from sat_tf.files import sha256_of
from training.data.examples import DataError, Example, Split, StoredImage

FORMAT = 1
_ANEW = "`python -m training.train` with another `--run-dir` reads the data anew."


@dataclass(frozen=True, eq=False)
class Dataset:
    """The splits of a data set.

    Attributes:
        splits: Split by name; those that the data set has.
        files: The caption files and lists that were read.
    """

    splits: Mapping[str, Split]
    files: tuple[Path, ...] = ()

    @property
    def in_files(self) -> bool:
        """True if every image is a file of its own: the records alone lead to all of them."""
        examples = (one for split in self.splits.values() for one in split.examples)
        return all(isinstance(example.image, Path) for example in examples)

    def lines(self, data_dir: Path | None) -> Iterator[str]:
        """Yields the lines of the record file; names of files are relative to `data_dir`."""
        base = None if data_dir is None else Path(data_dir).absolute()
        read = {_relative(path, base): sha256_of(path) for path in self.files if path.is_file()}
        kept = ("blank_captions", "notes", "uncaptioned", "held_out")
        splits = {
            name: {"images": len(split), "left_out": len(split.skipped)}
            | {key: getattr(split, key) for key in kept}
            for name, split in self.splits.items()
        }
        yield _line({"format": FORMAT, "in_files": self.in_files, "read": read, "splits": splits})
        for name, split in self.splits.items():
            numbers = {image_id: number for number, image_id in split.identifiers.items()}
            for one in split.examples:
                yield _line(_record(one, name, numbers.get(one.image_id), base))
            for image_id, reason in split.skipped:
                yield _line({"image": image_id, "split": name, "left_out": reason})


def _record(
    example: Example, split: str, identifier: str | None, base: Path | None
) -> dict[str, Any]:
    record: dict[str, Any] = {"image": example.image_id, "split": split}
    record["captions"] = example.captions
    if identifier is not None:
        record["id"] = identifier
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


def _relative(path: Path, base: Path | None) -> str:
    path = Path(path).absolute()
    if base is not None and path.is_relative_to(base):
        path = path.relative_to(base)
    return path.as_posix()


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


def read_dataset(path: Path, data_dir: Path | None) -> Dataset | None:
    """Reads a record file.

    Args:
        path: The file.
        data_dir: Where the data is now.

    Returns:
        The splits; None if images are not files of their own, which the data set has to be asked
        for.

    Raises:
        DataError: The file is damaged, or a caption file was changed since it was written.
    """
    with path.open(encoding="utf-8", errors="surrogateescape") as lines:
        header = _parsed(path, 1, next(lines, ""))
        try:
            if header["format"] != FORMAT:
                raise ValueError(f"format {header['format']!r}, this version reads {FORMAT}")
            if not header["in_files"]:
                return None
            base = Path(data_dir or "")
            _check_unchanged(path, base, header["read"])
            examples: dict[str, list[Example]] = {name: [] for name in header["splits"]}
            skipped: dict[str, list[tuple[str, str]]] = {name: [] for name in header["splits"]}
            identifiers: dict[str, dict[str, str]] = {name: {} for name in header["splits"]}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _damaged(path, 1, error) from error
        for number, line in enumerate(lines, start=2):
            record = _parsed(path, number, line)
            try:
                name, split = record["image"], record["split"]
                if "left_out" in record:
                    skipped[split].append((name, record["left_out"]))
                    continue
                captions = tuple(record["captions"])
                if not all(isinstance(text, str) for text in (name, *captions)):
                    raise ValueError("a name or a caption is no text")
                file = base / record.get("file", name)
                if "id" in record:
                    identifiers[split][record["id"]] = name
                details = {"sha256": record.get("sha256"), "group": record.get("group")}
                examples[split].append(Example(name, file, captions, **details))
            except (KeyError, TypeError, ValueError) as error:
                raise _damaged(path, number, error) from error
    splits = {}
    for name, facts in header["splits"].items():
        found = len(examples[name]), len(skipped[name])
        if found != (facts["images"], facts["left_out"]):
            raise DataError(
                f"{path} is not whole: expected {facts['images']} images of the {name} split and "
                f"{facts['left_out']} that are left out, got {found[0]} and {found[1]}. {_ANEW}"
            )
        splits[name] = Split(
            name,
            tuple(examples[name]),
            tuple(skipped[name]),
            facts["blank_captions"],
            tuple(facts["uncaptioned"]),
            tuple(facts["notes"]),
            identifiers[name],
            facts["held_out"],
        )
    return Dataset(splits, tuple(base / file for file in header["read"]))


def _parsed(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
        if not isinstance(value, dict):
            raise ValueError(f"expected a JSON object, got {line[:40]!r}")
    except ValueError as error:
        raise _damaged(path, number, error) from error
    return value


def _damaged(path: Path, number: int, error: Exception) -> DataError:
    why = f"it has no {error}" if isinstance(error, KeyError) else str(error).rstrip(".")
    return DataError(f"{path}, line {number} is damaged: {why}. {_ANEW}")


def _check_unchanged(path: Path, base: Path, read: Mapping[str, str]) -> None:
    for name, expected in read.items():
        file = base / name
        if not file.is_file():
            raise DataError(f"{file}, which {path.name} was made of, is gone. {_ANEW}")
        if sha256_of(file) != expected:
            raise DataError(f"{file} has changed since {path} was made of it. {_ANEW}")


def with_digests(split: Split, digests: Mapping[Path, str | None]) -> Split:
    """Returns a split whose examples have the SHA-256 of their files."""
    examples = (dataclasses.replace(e, sha256=digests.get(e.image)) for e in split.examples)
    return dataclasses.replace(split, examples=tuple(examples))


def check_images(path: Path, split: Split, digests: Mapping[Path, str | None]) -> None:
    """Checks that image files are those that the record file was made of.

    Raises:
        DataError: Some have changed; the message names one.
    """
    changed = [
        one.image_id
        for one in split.examples
        if one.sha256 is not None and digests.get(one.image) not in (None, one.sha256)
    ]
    if changed:
        raise DataError(
            f"{len(changed)} images of the {split.name} split have changed since {path} was "
            f"written, such as {PurePosixPath(changed[0])}. Restore them, or: {_ANEW}"
        )
