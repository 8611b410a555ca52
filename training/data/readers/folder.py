"""Your own data set: a folder of images with captions, in any language.

Read in four steps, each a function: `find_files` (files), `read_captions` (records), `gather`
(images), `divide` (splits). What is read is in `records.FORMS`; a caption file may name the splits,
there may be one file per split, or lists of images as Flickr8k has them; otherwise a hash of each
image's name, or of its group's, decides.
"""

from __future__ import annotations

import functools
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sat_tf.util.commands import counted
from sat_tf.util.files import as_utf8
from training.data.config import DataSet
from training.data.examples import (
    NO_CAPTIONS,
    NO_FILE,
    SPLITS,
    DataError,
    Example,
    Split,
    StoredImage,
    usable_split,
)
from training.data.readers import coco, flickr, pairs, tables
from training.data.readers.images import ImageFolder, is_image
from training.data.readers.records import (
    FORMS,
    RECIPES,
    CaptionFile,
    OtherFormError,
    Record,
    other_form,
    parse_json,
    read_text,
)
from training.data.readers.splits import choose_places, hashed_split, listed_splits, split_in_path

RESULTS = (
    ("config.json", "vocabulary.json"),
    ("report.json", "captions.json"),
    ("inspect.json", "index.html"),
)
"""Files of runs, evaluations and inspections: their folders hold no captions to learn from."""

_TABLES = {".csv": tables.read_csv, ".tsv": tables.read_csv, ".parquet": tables.read_parquet}
_TABLES |= dict.fromkeys((".jsonl", ".ndjson"), tables.read_json_lines)
SUFFIXES = (*_TABLES, ".json", ".tar", ".token")
_TEXTS = (".txt",)  # a caption file only if its name says so, or its first line
_ABOUT = ("readme", "license", "licence", "thumbs.db", "desktop.ini")
_NAMED, _TRIED, _DEEP = 4, 8, 2  # names in a note; caption files to read; levels of folders

Found = list[tuple[Path, str | None]]
"""Caption files, each with the split that its name gives to all of its images."""


@dataclass
class Image:
    """An image of the folder, with the records of all caption files."""

    name: str  # in the data set
    image: Path | StoredImage | None  # None without a file
    split: str | None  # None until it is decided
    group: str | None  # what it must share a split with
    captions: list[str] = field(default_factory=list)
    blank: int = 0  # missing captions
    identifier: str | None = None  # its number in a caption file
    place: str = ""  # where it is named first
    near: str | None = None  # a file that differs from a missing one in capitals

    @property
    def lacks(self) -> str:
        """Reason for which it cannot be used; empty if it can be."""
        if self.image is None:
            near = f"; there is {self.near}" if self.near else ""
            return f"{NO_FILE}{near}; named in {self.place}"
        return "" if self.captions else f"{NO_CAPTIONS}; named in {self.place}"


@dataclass(frozen=True)
class Folder:
    """A folder that was read."""

    images: Mapping[str, Image]  # all that caption files name, each with its split
    files: tuple[Path, ...]  # caption files and lists that were read
    listed: str  # the caption files, for messages
    places: tuple[float, ...] | None  # of the hash that divides the images, if it does
    uncaptioned: tuple[str, ...]  # image files that no caption file names
    notes: tuple[str, ...]

    def split(self, name: str, limit: int | None = None) -> Split:
        """Returns a split in the order of the files; images that cannot be used are skipped.

        Args:
            name: "train", "dev" or "test".
            limit: Take only so many examples.

        Raises:
            DataError: No image of the split can be used.
        """
        chosen = [image for image in self.images.values() if image.split == name]
        if not chosen:
            raise self._without(name)
        usable = [number for number, image in enumerate(chosen) if not image.lacks]
        chosen = chosen[: usable[limit - 1] + 1] if limit and limit <= len(usable) else chosen
        examples = [
            Example(
                one.name,
                one.image,
                tuple(one.captions),
                group=one.group,
                identifier=one.identifier,
            )
            for one in chosen
            if not one.lacks
        ]
        lost = [image for image in chosen if image.lacks]
        try:
            return usable_split(
                name,
                examples,
                [(image.name, image.lacks) for image in lost],
                f"the {name} split",
                blank_captions=sum(image.blank for image in chosen),
                uncaptioned=self.uncaptioned,
                notes=self.notes,
                skipped_identifiers={one.identifier: one.name for one in lost if one.identifier},
                held_out=None if self.places is None else ",".join(map(str, self.places)),
            )
        except DataError as error:
            way = "If another column has the names of the files, add `--data.columns image=NAME`."
            way = way if all(image.image is None for image in lost) else ""
            raise DataError(" ".join(filter(None, [str(error), way, *self.notes]))) from error

    def _without(self, name: str) -> DataError:
        sizes = _sizes(self.images.values())
        if self.places is None:
            way = f"Give some images the split {name}, or divide all: `--data.held-out 0.1,0.2`."
        elif any(image.group for image in self.images.values()):
            way = "Groups are kept together: add images of other groups, or leave the groups out."
        else:
            way = "Add images."
        told = f"{self.listed} names no image of the {name} split: of its {len(self.images)} images"
        return DataError(" ".join([f"{told} it has {sizes}. {way}", *self.notes]))


def read_folder(data_dir: Path, data: DataSet) -> Folder:
    """Reads a folder: its caption files, the images that they name, and their splits.

    Raises:
        DataError: There is no caption file, or several that could be it; one cannot be read; a
            name is that of several images; or splits contradict each other.
    """
    data_dir = Path(data_dir)
    images = ImageFolder(data_dir / (data.image_dir or ""))
    columns = tables.columns_of(data.columns)
    if data.held_out is not None:
        columns = {**columns, "split": ()}  # not read
    read = functools.cache(lambda path: read_captions(path, columns, images))
    found, reasons = find_files(data_dir, data.captions, images, read)
    files = [read(path) for path, _ in found]
    notes = [note for file in files for note in file.notes]
    gathered, more = gather(files, [split for _, split in found], images, data.held_out is None)
    used = {path for file in files for path in file.used}
    listed = str(files[0].path) + (f" (and {len(files) - 1} more)" if len(files) > 1 else "")
    places, lists, told = divide(gathered, data_dir, files, data.held_out, listed)
    named = {image.image for image in gathered.values()}
    rest = tuple(name for name in images.names if images.path_of(name) not in named)
    notes += [*more, *told]
    if rest:
        what = f"{counted(len(rest), 'image')} of the folder in no caption file"
        notes.append(f"Not read: {what}, such as {rest[0]}.")
    unread = unread_files(data_dir, {*used, *lists})
    notes += _named_files(unread, reasons.values())
    return Folder(gathered, (*sorted(used), *lists), listed, places, rest, tuple(notes))


# Files.


def find_files(
    data_dir: Path, named: str | None, images: ImageFolder, read: Callable
) -> tuple[Found, dict[Path, str]]:
    """Finds the caption files: those of `--data.captions`, the only one, or one per split.

    Returns each with the split that its name gives; and why others are not read.

    Raises:
        DataError: There is none, or it is unclear which.
    """
    if named is not None:
        chosen = named_files(data_dir, named)
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
    if pairs.texts_of(images):
        return [(images.root, None)], reasons
    alone = reasons if len(reasons) == 1 else {}
    way = f"{data_dir}: found no captions; expected {FORMS}. For other forms, see {RECIPES}."
    told = [*alone.values()] or [way]
    raise OtherFormError(" ".join([*_named_files(unread_files(data_dir, alone)), *told]))


def named_files(data_dir: Path, named: str) -> list[Path]:
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
    if suffix not in (*SUFFIXES, *_TEXTS) or not file.is_file():
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
    shards = files[0].suffix in (".tar", ".parquet")
    alone = len(set(splits)) == len(splits)  # else two files are of one split
    if (all(splits) and (alone or shards)) or (shards and not any(splits)):
        return list(zip(files, splits, strict=True))
    return []


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


def _named_files(unread: Sequence[str], reasons: Iterable[str] = ()) -> list[str]:
    """Sentences on files that are not read: a few names, or the number of each kind."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for name in unread:
        kinds[os.path.splitext(name)[1].lower()].append(name)
    named = ", ".join(
        ", ".join(of) if len(of) <= _NAMED else f"{len(of)} files *{kind} such as {of[0]}"
        for kind, of in kinds.items()
    )
    return [f"Not read: {told}" for told in (f"{named}." if named else "", *reasons) if told]


# Records.


def read_captions(path: Path, columns: tables.Columns, images: ImageFolder) -> CaptionFile:
    """Reads a caption file in its form, or the pairs of a folder.

    Raises:
        OtherFormError: It is in none, or does not tell which of its texts are the captions.
        DataError: It cannot be read.
    """
    if path.is_dir():
        return pairs.read_pairs(images if path == images.root else ImageFolder(path))
    suffix = path.suffix.lower()
    if suffix == ".tar":
        return pairs.read_tar(path)
    if suffix != ".json":
        if suffix not in (*SUFFIXES, *_TEXTS):
            raise other_form(path, f"a file *{suffix}")
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


# Images.


def gather(
    files: Sequence[CaptionFile],
    splits: Sequence[str | None],
    images: ImageFolder,
    with_splits: bool = True,
) -> tuple[dict[str, Image], list[str]]:
    """Merges the records of each image and finds its file; returns name -> image, and notes.

    `splits` are those that the files' names give.

    Raises:
        DataError: A name is that of several files, two names are of one file, or records of an
            image name two splits or two groups.
    """
    found: dict[str, Image] = {}
    owner: dict[str, str] = {}  # file -> name of its image
    nearly: dict[str, str] = {}
    for file, of_file in zip(files, splits, strict=True):
        beside, known = _folder_below(file.path, images.root), {}
        some = with_splits and any(record.split for record in file.records)
        for record in file.records:
            where = f"{file.path}, {record.place}"
            split = (record.split or (None if some else of_file)) if with_splits else None
            if some and split is None:
                raise DataError(
                    f"{where}: {record.image!r} has no split, but other images have one; give "
                    "every image its split, or none."
                )
            if record.stored is not None:
                name, path = record.image, None
            else:
                try:
                    if record.image not in known:
                        known[record.image] = images.match(record.image, beside)
                except DataError as error:
                    raise DataError(f"{where}: {error}.") from error
                name, path = known[record.image]
            if path is not None and owner.setdefault(path, name) != name:
                two = f"{owner[path]!r} and {record.image!r}"
                raise DataError(f"{where}: {two} both mean the file {path}; write its path.")
            if path is not None and path != name:
                nearly.setdefault(name, path)
            if name not in found:
                image = record.stored or (images.path_of(path) if path else None)
                place = f"{file.path.name}, {record.place}"
                near = images.near(name) if image is None else None
                found[name] = Image(name, image, split, record.group, place=place, near=near)
            _merge(found[name], record, split, where)
    what = f"{counted(len(nearly), 'name')} matched to the only file of that name"
    return found, [f"{what}, such as {name} by {path}." for name, path in [*nearly.items()][:1]]


def _merge(image: Image, record: Record, split: str | None, where: str) -> None:
    for kind, mine, theirs in (("split", image.split, split), ("group", image.group, record.group)):
        if mine != theirs:
            raise DataError(
                f"{where}: {record.image!r} is in the {kind} {theirs} here and in {mine} before "
                f"({image.place}); give each image one."
            )
    stored = record.stored
    if stored not in (None, image.image) and stored.read_bytes() != image.image.read_bytes():
        raise DataError(
            f"{where}: a second image {record.image!r}, unlike that of {image.place}; give each "
            "image a name of its own."
        )
    image.captions += record.captions
    image.blank += record.blank
    image.identifier = image.identifier or record.identifier


def _folder_below(path: Path, root: Path) -> str:
    """The folder of a caption file below that of the images; empty if it is that or elsewhere."""
    folder, root = (path if path.is_dir() else path.parent).resolve(), root.resolve()
    inner = folder.relative_to(root) if folder.is_relative_to(root) else Path()
    return "" if inner == Path() else inner.as_posix()


# Splits.


def divide(
    images: dict[str, Image],
    data_dir: Path,
    files: Sequence[CaptionFile],
    held_out: str | None,
    listed: str,
) -> tuple[tuple[float, ...] | None, tuple[Path, ...], list[str]]:
    """Gives each image its split: that of its records, of lists, of its folder, or of a hash.

    Returns the places of the hash (None if splits are given), the lists that were read, and notes.

    Raises:
        DataError: A group is in two splits, or an image in two lists.
    """
    lists, notes = (), []
    given = any(image.split for image in images.values())
    if not given and held_out is None:
        folders = dict.fromkeys((data_dir, *(file.path.parent for file in files)))
        splits, lists, notes = listed_splits(folders, images, [file.path for file in files])
        below = {name: split_in_path(name.split("/")[:-1], whole=True) for name in images}
        if not splits and {"train", "dev"} <= {*below.values()} and None not in below.values():
            splits = below
            notes.append("The splits are those of the images' folders.")
        if splits and (rest := len(images) - len(splits)):
            notes.append(f"{counted(rest, 'image')} in none of the lists, left out.")
        for name in list(images) if splits else ():
            images[name].split = splits.get(name)
        given = bool(splits)
    if given:
        _check_groups(listed, images.values())
        return None, lists, notes
    usable = [image for image in images.values() if not image.lacks] or images.values()
    sizes = Counter(image.group or image.name for image in usable)
    places = tuple(map(float, held_out.split(","))) if held_out else choose_places(sizes)
    for image in images.values():
        image.split = hashed_split(image.group or image.name, places)
    if groups := {image.group for image in images.values()} - {None}:
        kept = f"{counted(len(groups), 'group')} kept together"
        notes.append(f"{kept}: of {len(images)} images, {_sizes(images.values())}.")
    return places, lists, notes


def _sizes(images: Collection[Image]) -> str:
    splits = Counter(image.split for image in images)
    return ", ".join(f"{name} {splits[name]}" for name in SPLITS if splits[name])


def _check_groups(listed: str, images: Collection[Image]) -> None:
    first: dict[str, Image] = {}
    for image in images:
        other = first.setdefault(image.group, image) if image.group else image
        if other.split != image.split:
            raise DataError(
                f"{listed}: the group {image.group!r} is in two splits, {other.split} "
                f"({other.name}) and {image.split} ({image.name}); give a group one split."
            )
