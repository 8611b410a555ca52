"""Your own data set: a folder of images and a caption file, in any language.

The caption file has any of the forms of `caption_files`, and there may be one per split. It names
the images relative to the folder, to `--data.image_dir`, or to its own folder. If neither it nor
its name tells the splits, a hash of each image's name, or of its group's, decides.
"""

from __future__ import annotations

import os
import posixpath
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath, PureWindowsPath

from sat_tf.errors import invalid_value
from training.data.examples import (
    NO_CAPTIONS,
    NO_FILE,
    SPLITS,
    DataError,
    Example,
    Split,
    StoredImage,
    canonical_name,
    usable_split,
)
from training.data.sources.caption_files import (
    SUFFIXES,
    TEXTS,
    advice_without_captions,
    read_caption_file,
)
from training.data.sources.caption_files.columns import is_phrase, mostly
from training.data.sources.caption_files.records import CaptionFile, Record
from training.data.sources.caption_files.stored import lie_beside, pairs
from training.data.sources.given_splits import listed_splits, split_in, split_of
from training.data.sources.image_folder import ImageFolder, is_image
from training.data.sources.name_splits import choose_places, hashed_split, parse_places
from training.tables import counted

# Beside data sets of Hugging Face.
_NO_CAPTION_FILES = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")
_NO_CAPTION_FILES += ("classes.json",)  # beside annotations of tools, as is an object meta.json
# Files of runs, evaluations and inspections: their folders hold no captions to learn from.
_RESULTS = (
    ("config.json", "vocabulary.json"),
    ("report.json", "report.md"),
    ("inspect.json", "index.html"),
)
_HOW = " Write one, such as captions.csv with the header image,caption and a row per caption."
_INSIDE = (
    " If they are in the images, as Lightroom and others write them: in the folder, `exiftool -use "
    "MWG -csv -r -Description . > captions.csv`."
)
_TRIED = 20  # text files that may hold captions
_MANY = 100  # folders that may hold caption files
_DEEP = 2  # levels below them
_FEW, _SMALL = 4, 2**26  # caption files of which one is to be found by reading them, and bytes


@dataclass
class _Entry:
    """The records of one image, merged."""

    split: str | None
    group: str | None = None
    captions: list[str] = field(default_factory=list)
    blank: int = 0
    identifier: str | None = None
    stored: StoredImage | None = None
    file: str = ""  # name of its caption file


def load(
    split: str,
    data_dir: Path,
    *,
    captions: str | None = None,
    image_dir: str | None = None,
    columns: str | None = None,
    held_out: str | None = None,
    limit: int | None = None,
) -> Split:
    """Loads one split of a folder.

    Images without a file or without a caption are skipped; no image is opened.

    Args:
        split: "train", "dev" or "test".
        data_dir: The folder.
        captions: Path of the caption file within the folder, or several with commas or `*`; None
            if there is only one, or one per split.
        image_dir: Folder that the names of images start from, relative to `data_dir`; None for
            `data_dir` itself.
        columns: Roles of the caption file's columns, `image=NAME,caption=NAME,split=NAME`; None
            to find them by name and content.
        held_out: Places below which names are in dev and in test, `0.1,0.2`; None chooses them
            by `choose_places`.
        limit: Load only so many examples.

    Returns:
        The split in the order of the file, each image once. An image's id is its name with forward
        slashes, in Unicode's NFC form.

    Raises:
        ValueError: `captions` names no file of the folder.
        DataError: There is not exactly one caption file; it does not parse; a name leaves the
            folder; or no image of the split can be used.
    """
    data_dir = Path(data_dir)
    images = ImageFolder(data_dir / (image_dir or ""))
    files, entries, notes = [], {}, []
    paths = _caption_files(data_dir, captions, images, columns, notes)
    for path, of_file in paths:
        try:
            files.append(read_caption_file(path, columns, images.root))
        except DataError as error:
            others = [other for other, _ in paths if other != path]
            if advice := _advice_instead(path, others, data_dir, images, captions):
                raise DataError(f"{error} {advice}.") from error
            raise
        notes += [*files[-1].notes, *_gather(files[-1], of_file, images, entries)]
    listed = _listed(files)
    if held_out is None:
        _take_lists(data_dir, files, entries, notes)
    nearly = images.find_nearly(name for name, entry in entries.items() if entry.stored is None)
    if held_out is None:
        _take_folders({*images.all_names}, nearly, entries, notes)
    places = None
    if any(entry.split for entry in entries.values()):
        _check_groups(listed, entries)
    else:
        places = _divide(entries, {*images.all_names, *nearly}, held_out, notes)
    chosen = {name: entry for name, entry in entries.items() if entry.split == split}
    if not chosen:
        found = f"{listed} names no image of the {split} split: of its {len(entries)} images it has"
        advice = _advice_on_split(split, files, data_dir, entries, given=places is None)
        raise DataError(f"{found} {_sizes(entries)}. {advice}")
    place = image_dir or "the data folder"
    examples, skipped, blank = [], [], 0
    for name, entry in chosen.items():
        if len(examples) == limit:
            break
        blank += entry.blank
        image = entry.stored or images.find(nearly.get(name, name))
        if image is None:
            near = images.near_match(name)
            skipped.append((name, f"{NO_FILE} in {place}{f'; {near}' if near else ''}"))
        elif not entry.captions:
            skipped.append((name, f"{NO_CAPTIONS} in {entry.file}"))
        else:
            examples.append(Example(name, image, tuple(entry.captions)))
    for name, near in islice(nearly.items(), 1):
        found = f"{len(nearly)} images were found by the only file of nearly their name"
        notes.append(f"{found}, such as {name} by {near}.")
    used = set(nearly.values())
    details = {
        "blank_captions": blank,
        "uncaptioned": tuple(n for n in images.all_names if n not in entries and n not in used),
        "notes": tuple(dict.fromkeys(notes)),
        "identifiers": {e.identifier: name for name, e in chosen.items() if e.identifier},
        "held_out": None if places is None else ",".join(map(str, places)),
    }
    try:
        return usable_split(split, examples, skipped, f"the {split} split of {listed}", **details)
    except DataError as error:
        advice = _advice_on_names(data_dir, images, skipped)
        raise DataError(" ".join([f"{error}{advice}", *notes])) from error


def _advice_instead(
    path: Path, others: Sequence[Path], data_dir: Path, images: ImageFolder, named: str | None
) -> str:
    """Returns how to do without a caption file that cannot be read; empty if there is no way."""
    if others:
        without = ",".join(_inside_of(data_dir, other) for other in others)
        return f"`--data.captions {without}` reads without it"
    if named is None and path != images.root and next(pairs(images.root), None):
        return "`--data.captions .` reads the files named like the images instead"
    return ""


def _advice_on_names(
    data_dir: Path, images: ImageFolder, skipped: Sequence[tuple[str, str]]
) -> str:
    """Returns what to do if no image of a split has a file."""
    packed = advice_without_captions(sorted(data_dir.iterdir()))
    if "packed" in packed:
        return packed
    if images.all_names and all(reason.startswith(NO_FILE) for _, reason in skipped):
        return (
            " If another column or key has the names of the files, choose it with "
            "`--data.columns image=NAME`."
        )
    return ""


Files = list[tuple[Path, str | None]]
"""Caption files, each with the split that its name gives all of its images."""


def _caption_files(
    data_dir: Path,
    named: str | None,
    images: ImageFolder,
    columns: str | None,
    notes: list[str],
) -> Files:
    """The caption file or files: those named, else the only one, or one per split.

    If a few could be it, they are read: the only one with captions is it, which is noted.
    """
    kinds = ", ".join(f"*{suffix}" for suffix in SUFFIXES)
    names = _file_names(data_dir)
    here = [data_dir / name for name in names if name.lower().endswith(SUFFIXES)]
    if named is not None:
        chosen = _named(data_dir, named)
        if not chosen:
            there = ", ".join(f.name for f in here if _is_caption_file(f)) or "none"
            expected = f"a file ({kinds}) in {data_dir}, which has {there}"
            raise invalid_value("--data.captions", expected, repr(named))
        return [(path, split_of(path, data_dir) if len(chosen) > 1 else None) for path in chosen]
    found = _without_by_products([file for file in here if _is_caption_file(file)])
    inner, within = [], []
    if not found:
        inner = _folders(data_dir)
        within = [file for folder in inner for file in _files(folder)]
        found = _without_by_products([file for file in within if _is_caption_file(file, TEXTS)])
    if not found and lie_beside(images.root):
        return [(images.root, None)]
    paired = None if found else next(pairs(images.root), None)
    if paired and not paired[1].lower().endswith(".xmp"):  # which cameras write too
        return [(images.root, None)]
    errors: list[DataError] = []
    texts: list[Path] = []
    if not found:
        texts = [data_dir / name for name in names if name.lower().endswith(TEXTS)]
        texts = [file for file in texts if file.name.lower() != "readme.txt"][:_TRIED]
        found = _that_parse(texts, images, columns, errors)
        captions = [file for file in found if "caption" in file.stem.lower()]
        found = captions if len(captions) == 1 else found
    if not found and paired:
        return [(images.root, None)]
    for _ in range(_DEEP):  # data/train/metadata.csv
        if not found:
            inner = [one for folder in inner for one in _folders(folder)][:_MANY]
            deeper = [file for folder in inner for file in _files(folder)]
            found = _without_by_products([file for file in deeper if _is_caption_file(file, TEXTS)])
    if len(found) == 1:
        return [(found[0], None)]
    if several := _one_per_split(found, data_dir):
        return several
    if len(found) > _FEW and set(map(str, found)) <= {text for _, text, _ in pairs(images.root)}:
        return [(images.root, None)]
    if 1 < len(found) <= _FEW and sum(file.stat().st_size for file in found) < _SMALL:
        parsed = _that_parse(found, images, columns, errors)
        if len(parsed) > 1:  # beside sentences, labels of one word are not captions
            read = [read_caption_file(file, columns, images.root).records for file in parsed]
            told = [[text for record in records for text in record.captions] for records in read]
            both = zip(parsed, told, strict=True)
            parsed = [file for file, captions in both if mostly(is_phrase, captions)]
        if len(parsed) == 1:
            rest = ", ".join(file.name for file in found if file != parsed[0])
            notes.append(f"Captions are those of {parsed[0].name}; not read: {rest}.")
            return [(parsed[0], None)]
    shown = errors if len(errors) <= 2 else []
    reading = f" (Reading them: {' '.join(map(str, shown))})" if shown else ""
    advice = _advice_on_files(data_dir, found, within, texts if shown else ())
    there = ", ".join(f.relative_to(data_dir).as_posix() for f in found[:20]) or "none"
    raise DataError(
        f"{data_dir}: expected one caption file ({kinds}), found {there}.{advice}{reading}"
    )


def _advice_on_files(
    data_dir: Path, found: Sequence[Path], within: Sequence[Path], tried: Sequence[Path]
) -> str:
    """Returns what to do if there is not one caption file, but none or several."""
    if not found:
        files = [*_files(data_dir), *within]
        return advice_without_captions(files, tried) or (_HOW if files else _HOW + _INSIDE)
    advice = (
        " Name the one to use with `--data.captions FILE`, or all that belong together, such as "
        "one per split, with `--data.captions FILE,FILE`."
    )
    if len(found) > _FEW and all(file.suffix == ".json" for file in found):
        folder = _inside_of(data_dir, found[0].parent)
        advice += f" If each is a record of one image: `jq -s . {folder}/*.json > captions.json`."
    return advice


def _files(folder: Path) -> list[Path]:
    """The files of a folder that may hold captions, sorted."""
    return [folder / name for name in _file_names(folder)]


def _folders(folder: Path) -> list[Path]:
    """The first folders in a folder, sorted, but for those of results."""
    with os.scandir(folder) as entries:
        names = sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    return [folder / name for name in names[:_MANY] if not _has_results(folder / name)]


def _has_results(folder: Path) -> bool:
    return any(all((folder / name).is_file() for name in names) for names in _RESULTS)


def _file_names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(
            entry.name
            for entry in entries
            if not entry.name.startswith(".") and not is_image(entry.name) and entry.is_file()
        )


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


def _that_parse(
    files: Sequence[Path], images: ImageFolder, columns: str | None, errors: list[DataError]
) -> list[Path]:
    """The files that can be read as caption files; notes the errors of the others."""
    found = []
    for file in files:
        try:
            if any(
                record.captions for record in read_caption_file(file, columns, images.root).records
            ):
                found.append(file)
        except DataError as error:
            errors.append(error)
    return found


def _named(data_dir: Path, named: str) -> list[Path]:
    """The files that the user names, with commas between or `*` in them."""
    if (data_dir / named).exists():
        return [data_dir / named]
    found = []
    for part in filter(None, map(str.strip, named.split(","))):
        files = sorted(data_dir.glob(part)) if "*" in part else [data_dir / part]
        if not files or not all(file.is_file() for file in files):
            return []
        found += files
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


def _take_lists(
    data_dir: Path, files: Sequence[CaptionFile], entries: dict[str, _Entry], notes: list[str]
) -> None:
    """Gives images the splits of lists, if the caption file gives none.

    Images in none of the lists are removed.
    """
    if any(entry.split for entry in entries.values()):
        return
    read = [file.path for file in files]
    inner = _folders(data_dir)
    deeper = (one for folder in inner for one in _folders(folder))
    folders = dict.fromkeys((data_dir, *(path.parent for path in read), *inner, *deeper))
    splits, named = listed_splits(islice(folders, _MANY), entries, read)
    if not splits:
        return
    rest = [name for name in entries if name not in splits]
    for name in rest:
        del entries[name]
    for name, entry in entries.items():
        entry.split = splits[name]
    left = f"; {len(rest)} images in none of them are left out" if rest else ""
    notes.append(f"The splits are those of {', '.join(named)}{left}.")


def _take_folders(
    files: set[str], nearly: Mapping[str, str], entries: Mapping[str, _Entry], notes: list[str]
) -> None:
    """Gives images the splits that their folders name, if all do, with train and dev among them.

    `nearly` has the names of `files` that entries mean, where those differ from their own.
    """
    if any(entry.split for entry in entries.values()):
        return
    names = {name: nearly.get(name, name) for name in entries}
    here = [name for name, entry in entries.items() if entry.stored or names[name] in files]
    splits = {name: split_in(PurePosixPath(names[name]).parts[:-1]) for name in here}
    there = [split for split in SPLITS if split in splits.values()]
    if None in splits.values() or len(there) < 2:
        return
    if "train" not in there or "dev" not in there:
        notes.append(
            f"The images' folders name only {' and '.join(there)}: names divide the images instead."
        )
        return
    for name, entry in entries.items():
        entry.split = splits.get(name, "train")
    notes.append(
        f"The splits are those of the images' folders: of {len(entries)} images, {_sizes(entries)}."
    )


def _listed(files: Sequence[CaptionFile]) -> str:
    return str(files[0].path) + (f" (and {len(files) - 1} more)" if len(files) > 1 else "")


def _advice_on_split(
    split: str,
    files: Sequence[CaptionFile],
    data_dir: Path,
    entries: Mapping[str, _Entry],
    given: bool,
) -> str:
    """Returns what to do if a split has no image."""
    if not given:
        if not any(entry.group for entry in entries.values()):
            return "Add images."
        return "Groups are kept together: add images of other groups, or leave the groups out."
    advice = f"Give some of the images the split {split}"
    if len(files) == 1:
        return f"{advice}, or take the splits out, and names divide the images."
    name = _inside_of(data_dir, files[0].path)
    return f"{advice}, or take one file, `--data.captions {name}`: names then divide its images."


def _inside_of(data_dir: Path, file: Path) -> str:
    """A file's path as `--data.captions` names it."""
    return str(file.relative_to(data_dir) if file.is_relative_to(data_dir) else file.name)


def _gather(
    file: CaptionFile, of_file: str | None, images: ImageFolder, entries: dict[str, _Entry]
) -> list[str]:
    """Adds the entry of every image, in the order of the file; returns notes."""
    path, records = file.path, file.records
    named = any(record.split for record in records)
    beside, names, absolute = _folder_of(path, images), {}, {}
    for record in records:
        if named and record.split is None:
            raise DataError(
                f"{path}, {record.place}: {record.image!r} has no split, but other images have "
                "one; give every image its split, or none."
            )
        split = record.split or of_file
        name = names.get(record.image)
        if name is None:
            name = _inside(path, record, images)
            if name in absolute.values():
                raise _outside(path, record)
            if name != canonical_name(record.image):
                absolute[record.image] = name
            if beside and record.stored is None and images.find(f"{beside}/{name}"):
                name = f"{beside}/{name}"
            names[record.image] = name
        entry = entries.setdefault(name, _Entry(split, record.group, file=path.name))
        if entry.split != split:
            raise DataError(
                f"{path}, {record.place}: {record.image!r} is in the {split} split here "
                f"and in {entry.split} before."
            )
        if record.group != entry.group:
            raise DataError(
                f"{path}, {record.place}: {record.image!r} is in the group {record.group!r} here "
                f"and in {entry.group!r} before; give each image one group."
            )
        entry.captions += record.captions
        entry.blank += record.blank
        entry.identifier = entry.identifier or record.identifier
        entry.stored = entry.stored or record.stored
    if not absolute:
        return []
    first, found = next(iter(absolute.items()))
    return [f"{path.name}: {len(absolute)} paths are taken by their ends: {first} is {found}."]


def _folder_of(path: Path, images: ImageFolder) -> str:
    """The folder of a caption file, below that of the images; empty if it is that or elsewhere."""
    folder = path if path.is_dir() else path.parent
    try:
        inner = folder.resolve().relative_to(images.root.resolve()).as_posix()
    except ValueError:
        return ""
    return "" if inner == "." else unicodedata.normalize("NFC", inner)


def _inside(path: Path, record: Record, images: ImageFolder) -> str:
    """The image's name in NFC with forward slashes, which must not leave the folder.

    An absolute path, such as one of another machine, is that of the image that its end means.
    """
    name = canonical_name(record.image)
    # On Windows a drive makes a path absolute.
    anchored = name[:1] == "/" or (name[1:2] == ":" and PureWindowsPath(name).drive)
    found = images.inside(name) if anchored else name
    if name.startswith("../"):  # from the caption file's own folder
        within = posixpath.normpath(posixpath.join(_folder_of(path, images), name))
        found = within if images.find(within) else images.inside(f"/{name}")
    if found is None or found in (".", "..") or found.startswith("../"):
        raise _outside(path, record)
    return found


def _outside(path: Path, record: Record) -> DataError:
    return DataError(
        f"{path}, {record.place}: expected the path of an image relative to its folder and "
        f"inside it, got {record.image!r}; {PureWindowsPath(record.image).name!r} alone is enough "
        "if it is the only image of that name."
    )


def _sizes(entries: Mapping[str, _Entry]) -> str:
    splits = Counter(entry.split for entry in entries.values())
    return ", ".join(f"{name} {splits[name]}" for name in SPLITS if splits[name])


def _divide(
    entries: Mapping[str, _Entry], there: set[str], held_out: str | None, notes: list[str]
) -> tuple[float, float]:
    """Gives images the splits by the places of their names, or groups; returns these places."""
    places = parse_places(held_out) or choose_places(_group_sizes(entries, there))
    for name, entry in entries.items():
        entry.split = hashed_split(entry.group or name, places)
    if groups := {entry.group for entry in entries.values()} - {None}:
        kept = f"{counted(len(groups), 'group')} kept together"
        notes.append(f"{kept}: of {len(entries)} images, {_sizes(entries)}.")
    return places


def _group_sizes(entries: Mapping[str, _Entry], there: set[str]) -> Counter:
    """Number of images of each group, or of each name without one, that can be used."""
    usable = {n: e for n, e in entries.items() if e.captions and (e.stored or n in there)}
    return Counter(entry.group or name for name, entry in (usable or entries).items())


def _check_groups(listed: str, entries: Mapping[str, _Entry]) -> None:
    """Checks that splits which are given keep groups together.

    Raises:
        DataError: A group is in two of them; the message names it.
    """
    first: dict[str, str] = {}
    for name, entry in entries.items():
        other = first.setdefault(entry.group, name) if entry.group else name
        if entries[other].split != entry.split:
            raise DataError(
                f"{listed}: the group {entry.group!r} is in two splits, {entries[other].split} "
                f"({other}) and {entry.split} ({name}): give all images of a group one split, or "
                "remove the splits, and groups are then kept together."
            )
