"""Finds the caption files of a folder: those named, the only one, or one per split."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from sat_tf.util.errors import invalid_value
from training.data.examples import DataError
from training.data.readers.account import SUFFIXES, TEXTS, has_results
from training.data.readers.caption_files.records import CaptionFile
from training.data.readers.caption_files.roles import is_phrase, mostly
from training.data.readers.image_folder import ImageFolder, is_image
from training.data.readers.splits import split_of

# Beside data sets of Hugging Face.
_NO_CAPTION_FILES = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")
_NO_CAPTION_FILES += ("classes.json",)  # beside annotations of tools, as is an object meta.json
MANY = 100
"""Folders that are looked through at most."""
_TRIED = 20  # text files that may hold captions
_DEEP = 2  # levels below them
_FEW, _SMALL = 4, 2**26  # caption files of which one is to be found by reading them, and bytes

_KINDS = ", ".join(f"*{suffix}" for suffix in SUFFIXES)

Read = Callable[[Path], CaptionFile]
Files = list[tuple[Path, str | None]]
"""Caption files, each with the split that its name gives all of its images."""


def find_caption_files(
    data_dir: Path, named: str | None, images: ImageFolder, read: Read, reasons: dict[Path, str]
) -> Files:
    """The caption file or files: those named, else the only one, or one per split.

    If a few could be it, they are read: the only one with captions is it; `reasons` gets why
    others are not.
    """
    if named is not None:
        chosen = named_files(data_dir, named)
        return [(path, split_of(path, data_dir) if len(chosen) > 1 else None) for path in chosen]
    errors: list[DataError] = []
    found = _without_by_products(_here(data_dir))
    found = found or _look_further(data_dir, images, read, errors)
    if len(found) == 1:
        return [(found[0], None)]
    if several := _one_per_split(found, data_dir):
        return several
    if len(found) > _FEW and _lie_with_images(found, images):
        return [(images.root, None)]
    if 1 < len(found) <= _FEW and sum(file.stat().st_size for file in found) < _SMALL:
        parsed = _that_parse(found, read, errors)
        if len(parsed) > 1:  # beside sentences, labels of one word are not captions
            told = [[text for r in read(file).records for text in r.captions] for file in parsed]
            both = zip(parsed, told, strict=True)
            parsed = [file for file, captions in both if mostly(is_phrase, captions)]
        if len(parsed) == 1:
            reasons |= dict.fromkeys(set(found) - set(parsed), "they hold no captions")
            return [(parsed[0], None)]
    from training.data.readers.caption_files import advice

    shown = errors if len(errors) <= 2 else []
    if found:
        told = advice.with_several(data_dir, found, len(found) > _FEW)
    else:
        texts, inner = _texts(data_dir), folders_in(data_dir)
        files = [file for folder in (data_dir, *inner) for file in _files(folder)]
        told = advice.without_captions(files, texts if shown else ())
        told += "" if texts else advice.on_texts_alone(data_dir, images.all_names)
    reading = f" (Reading them: {' '.join(map(str, shown))})" if shown else ""
    there = ", ".join(f.relative_to(data_dir).as_posix() for f in found[:20]) or "none"
    raise DataError(
        f"{data_dir}: expected one caption file ({_KINDS}), found {there}.{told}{reading}"
    )


def _look_further(
    data_dir: Path, images: ImageFolder, read: Read, errors: list[DataError]
) -> list[Path]:
    """Caption files in the folders within, texts that parse, or the folder of paired files."""
    from training.data.readers.caption_files.stored import pairs

    def named_so(folders: Sequence[Path]) -> list[Path]:
        files = [file for folder in folders for file in _files(folder)]
        return _without_by_products([file for file in files if _is_caption_file(file, TEXTS)])

    inner = folders_in(data_dir)
    if found := named_so(inner):
        return found
    paired = next(pairs(images.root), None)
    if paired and not paired[1].lower().endswith(".xmp"):  # cameras write XMP too
        return [images.root]
    if found := _that_parse(_texts(data_dir), read, errors):
        captions = [file for file in found if "caption" in file.stem.lower()]
        return captions if len(captions) == 1 else found
    if paired:
        return [images.root]
    for _ in range(_DEEP):  # data/train/metadata.csv
        inner = [one for folder in inner for one in folders_in(folder)][:MANY]
        if found := named_so(inner):
            return found
    return []


def _lie_with_images(found: Sequence[Path], images: ImageFolder) -> bool:
    """Tests if files are those of single images."""
    from training.data.readers.caption_files.stored import pairs

    return set(map(str, found)) <= {text for _, text, _ in pairs(images.root)}


def _texts(folder: Path) -> list[Path]:
    """The texts of a folder that may hold captions."""
    texts = [file for file in _files(folder) if file.name.lower().endswith(TEXTS)]
    return [file for file in texts if file.name.lower() != "readme.txt"][:_TRIED]


def folders_in(folder: Path) -> list[Path]:
    """The first folders in a folder, sorted, but for those of results."""
    with os.scandir(folder) as entries:
        names = sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    return [folder / name for name in names[:MANY] if not has_results(folder / name)]


def _files(folder: Path) -> list[Path]:
    """The files of a folder that may hold captions, sorted."""
    with os.scandir(folder) as entries:
        names = sorted(
            entry.name
            for entry in entries
            if not entry.name.startswith(".") and not is_image(entry.name) and entry.is_file()
        )
    return [folder / name for name in names]


def _is_caption_file(file: Path, others: tuple[str, ...] = ()) -> bool:
    """Tests if a file is one by its name, and not one beside each image.

    Args:
        file: The file.
        others: Suffixes of further files that are, if their name says so.
    """
    name = file.name.lower()
    if not name.endswith(SUFFIXES) and not ("caption" in name and name.endswith(others)):
        return False
    if file.name in _NO_CAPTION_FILES:
        return False
    if file.name == "meta.json" and file.read_bytes()[:1] == b"{":
        return False
    stem, suffix = os.path.splitext(file)
    if suffix.lower() != ".json":
        return True
    images = (stem + end for end in (".jpg", ".png", ".jpeg"))
    return not is_image(file.stem) and not any(map(os.path.exists, images))


def _without_by_products(files: list[Path]) -> list[Path]:
    """Leaves out what img2dataset writes beside tars and folders, and Flickr8k's lemmas."""
    tars = {file.stem for file in files if file.suffix == ".tar"}

    def is_by_product(file: Path) -> bool:
        downloaded = file.stem in tars or (file.parent / file.stem).is_dir()
        return (
            file.name.endswith("_stats.json")
            or ".lemma." in file.name
            or (file.suffix == ".parquet" and downloaded)
        )

    return [file for file in files if not is_by_product(file)]


def _that_parse(files: Sequence[Path], read: Read, errors: list[DataError]) -> list[Path]:
    """The files that can be read as caption files; notes the errors of the others."""
    found = []
    for file in files:
        try:
            if any(record.captions for record in read(file).records):
                found.append(file)
        except DataError as error:
            errors.append(error)
    return found


def _here(data_dir: Path) -> list[Path]:
    files = [file for file in _files(data_dir) if file.name.lower().endswith(SUFFIXES)]
    return [file for file in files if _is_caption_file(file)]


def named_files(data_dir: Path, named: str) -> list[Path]:
    """The files that the user names, with commas between or `*` in them.

    Raises:
        ValueError: There is no such file.
    """
    if (data_dir / named).exists():
        return [data_dir / named]
    found = []
    for part in filter(None, map(str.strip, named.split(","))):
        files = sorted(data_dir.glob(part)) if "*" in part else [data_dir / part]
        if not files or not all(file.is_file() for file in files):
            found = []
            break
        found += files
    if not found:
        there = ", ".join(file.name for file in _here(data_dir)) or "none"
        expected = f"a file ({_KINDS}) in {data_dir}, which has {there}"
        raise invalid_value("--data.captions", expected, repr(named))
    return found


def _one_per_split(found: Sequence[Path], data_dir: Path) -> Files:
    """The files that together are one data set, of splits or shards; none if it is unclear."""
    captions = [file for file in found if "caption" in file.stem.lower()]
    for files in (found, captions):
        splits = [split_of(file, data_dir) for file in files]
        if len(files) < 2 or len({file.suffix for file in files}) > 1:
            continue
        shards = files[0].suffix in (".tar", ".parquet")
        alone = len(set(splits)) == len(splits)  # else two files are of one split
        if all(splits) and (alone or shards):
            return list(zip(files, splits, strict=True))
        if shards and not any(splits):
            return [(file, None) for file in files]
    return []
