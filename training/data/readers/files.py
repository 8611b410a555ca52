"""The caption files of a folder: names, forms, and files that are not read."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from sat_tf.util.files import as_utf8
from training.data.examples import DataError
from training.data.readers import coco, flickr, pairs, tables
from training.data.readers.images import ImageFolder, is_image
from training.data.readers.records import (
    FORMS,
    RECIPES,
    CaptionFile,
    OtherFormError,
    other_form,
    parse_json,
    read_text,
)
from training.data.readers.splits import split_in_path

RESULTS = (("config.json", "vocabulary.json"), ("report.json", "captions.json"), ("inspect.json",))
"""Files of runs, evaluations and inspections: their folders hold no captions to learn from."""

_TABLES = {".csv": tables.read_csv, ".tsv": tables.read_csv, ".parquet": tables.read_parquet}
_TABLES |= dict.fromkeys((".jsonl", ".ndjson"), tables.read_json_lines)
_TEXTS = (".txt",)  # a caption file only if its name says so
_SUFFIXES = (*_TABLES, *_TEXTS, ".json", ".tar", ".token")
_SHARDS = (".tar", ".parquet")
_ABOUT = ("readme", "license", "licence", "thumbs.db", "desktop.ini")
_NAMED, _TRIED, _DEEP = 4, 8, 2  # names in a note; caption files to read; levels of folders

Found = list[tuple[Path, str | None]]
"""Caption files, each with the split that its name gives to all of its images."""


def find_files(
    data_dir: Path, named: str | None, images: ImageFolder, read: Callable
) -> tuple[Found, dict[Path, str]]:
    """Finds the caption files: those of `--data.captions`, the only one, or one per split.

    Returns each with the split that its name gives; and why others are not read.

    Raises:
        DataError: There is none, or it is unclear which.
    """
    if named is not None:
        chosen = _named_files(data_dir, named)
        several = len(chosen) > 1
        return [(path, _split_of(path, data_dir) if several else None) for path in chosen], {}
    reasons: dict[Path, str] = {}
    for files in _levels(data_dir):
        captions = [file for file in files if "caption" in file.stem.lower()]
        if several := _one_per_split(files, data_dir) or _one_per_split(captions, data_dir):
            return several, reasons
        fitting = []
        for file in files if len(files) <= _TRIED else captions[:_TRIED]:
            try:
                read(file)
                fitting.append(file)
            except OtherFormError as error:
                reasons[file] = str(error)
        if len(fitting) == 1:
            return [(fitting[0], None)], reasons
        if fitting:
            there = [file.relative_to(data_dir).as_posix() for file in fitting]
            way = f"Name one with `--data.captions {there[0]}`, or all that belong together: "
            raise DataError(
                f"{data_dir}: expected one caption file, or one per split, found "
                f"{', '.join(there)}. {way}`--data.captions {','.join(there)}`."
            )
    if pairs.texts_of(images.files):
        return [(images.root, None)], reasons
    alone = reasons if len(reasons) == 1 else {}
    way = f"{data_dir}: found no captions; expected {FORMS}. For other forms, see {RECIPES}."
    told = [*alone.values()] or [way]
    raise OtherFormError(" ".join([*not_read(unread_files(data_dir, alone)), *told]))


def _named_files(data_dir: Path, named: str) -> list[Path]:
    """The files that the user names, with commas between or `*` in them."""
    if (data_dir / named).exists():
        return [data_dir / named]
    parts = [part.strip() for part in named.split(",")]
    found = [sorted(data_dir.glob(p)) if "*" in p else [data_dir / p] for p in parts if p]
    if not found or not all(of and all(map(Path.is_file, of)) for of in found):
        there = ", ".join(file.name for file in next(_levels(data_dir), [])) or "none"
        raise DataError(
            f"`--data.captions {named}`: no such file in {data_dir}, which has {there}."
        )
    return [file for of in found for file in of]


def _levels(data_dir: Path) -> Iterator[list[Path]]:
    """Yields the files that may hold captions in the folder, then those one level deeper."""
    folders = [data_dir]
    for _ in range(_DEEP + 1):
        there = [one for folder in folders for one in sorted(folder.iterdir())]
        there = [one for one in there if one.name[0] != "."]
        if files := [one for one in there if _may_be_captions(one)]:
            yield files
        folders = [one for one in there if one.is_dir() and not has_results(one)]


def has_results(folder: Path) -> bool:
    """Returns whether a folder is that of a run, an evaluation or an inspection."""
    return any(all((folder / name).is_file() for name in names) for names in RESULTS)


def _may_be_captions(file: Path) -> bool:
    name, suffix = file.name.lower(), file.suffix.lower()
    if suffix not in _SUFFIXES or not file.is_file():
        return False
    if suffix in _TEXTS:
        return any(word in name for word in ("caption", ".token", "results"))
    images = (file.with_suffix(end) for end in (".jpg", ".png", ".jpeg"))
    of_image = suffix == ".json" and (is_image(file.stem) or any(map(Path.exists, images)))
    return not of_image and ".lemma" not in name


def _split_of(file: Path, data_dir: Path) -> str | None:
    inside = file.relative_to(data_dir) if file.is_relative_to(data_dir) else Path(file.name)
    return split_in_path(inside.parts)


def _one_per_split(files: Sequence[Path], data_dir: Path) -> Found:
    """The files of one kind that are one data set, of splits or shards; none if it is unclear."""
    splits = [_split_of(file, data_dir) for file in files]
    if len(files) < 2 or len({file.suffix for file in files}) > 1:
        return []
    shards = files[0].suffix in _SHARDS
    alone = len(set(splits)) == len(splits)  # else two files are of one split
    if (all(splits) and (alone or shards)) or (shards and not any(splits)):
        return list(zip(files, splits, strict=True))
    return []


def read_captions(path: Path, columns: tables.Columns, images: ImageFolder) -> CaptionFile:
    """Reads a caption file in its form, or the pairs of a folder.

    Raises:
        OtherFormError: It is in none, or does not say which texts are the captions.
        DataError: It cannot be read.
    """
    if path.is_dir():
        return pairs.read_pairs(images if path == images.root else ImageFolder(path))
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise other_form(path, f"a file *{suffix}")
    if suffix == ".tar":
        return pairs.read_tar(path)
    if suffix != ".json":
        read = _TABLES.get(suffix, tables.read_csv)
        if read is tables.read_csv and flickr.has_token_lines(path):
            return flickr.read_tokens(path)
        return read(path, columns, images.stems)
    content = parse_json(read_text(path), path)
    if coco.is_coco(content):
        return coco.read_coco(path, content)
    if coco.is_karpathy(content):
        return coco.read_karpathy(path, content)
    if isinstance(content, list):
        entries = [(f"[{index}]", entry) for index, entry in enumerate(content)]
        return tables.read_entries(path, entries, columns, images.stems)
    keys = ", ".join(map(repr, list(content)[:3])) if isinstance(content, dict) else repr(content)
    raise other_form(path, f"an object with the keys {keys:.120}")


def unread_files(data_dir: Path, used: Collection[Path]) -> list[str]:
    """Returns the names of all files but images, those in use, and those about the folder."""
    known, root, found = set(map(os.path.abspath, used)), os.path.abspath(data_dir), []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name for name in folders if name[0] != "." and not has_results(Path(folder, name))
        )
        for name in sorted(files):
            path = os.path.join(folder, name)
            about = name.startswith(".") or name.lower().startswith(_ABOUT) or is_image(name)
            if not about and path not in known:
                found.append(as_utf8(os.path.relpath(path, root)))
    return found


def not_read(unread: Sequence[str], reasons: Iterable[str] = ()) -> list[str]:
    """Sentences on files that are not read: a few names, or the number of each kind."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for name in unread:
        kinds[os.path.splitext(name)[1].lower()].append(name)
    named = ", ".join(
        ", ".join(of) if len(of) <= _NAMED else f"{len(of)} files *{kind} such as {of[0]}"
        for kind, of in kinds.items()
    )
    return [f"Not read: {told}" for told in (f"{named}." if named else "", *reasons) if told]
