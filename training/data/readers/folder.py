"""Your own data set: a folder of images and a caption file, in any language.

The caption file has any of the forms of `caption_files`, and there may be one per split. It names
the images relative to the folder, to `--data.image_dir`, or to its own folder. If neither it nor
its name tells the splits, a hash of each image's name, or of its group's, decides.
"""

from __future__ import annotations

import dataclasses
import functools
import posixpath
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath, PureWindowsPath

from sat_tf.util.text_tables import counted
from training.data.config import parse_places
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
from training.data.readers.account import inside_of, unread_files, unread_images
from training.data.readers.caption_files import read_caption_file
from training.data.readers.caption_files.records import CaptionFile, Record, name_of_several
from training.data.readers.find_captions import MANY, find_caption_files, folders_in
from training.data.readers.image_folder import ImageFolder
from training.data.readers.splits import choose_places, hashed_split, listed_splits, split_in


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


class Folder:
    """A folder whose caption files were read.

    Args:
        data_dir: The folder.
        captions: Path of the caption file within the folder, or several with commas or `*`; None
            if there is only one, or one per split.
        image_dir: Folder that the names of images start from, relative to `data_dir`; None for
            `data_dir` itself.
        columns: Roles of the caption file's columns, `image=NAME,caption=NAME,split=NAME`; None
            to find them by name and content.
        held_out: Places below which names are in dev and in test, `0.1,0.2`, see `hashed_split`;
            None chooses them by `choose_places`.

    Attributes:
        used: The caption files and lists that were read.

    Raises:
        ValueError: `captions` names no file of the folder.
        DataError: There is not exactly one caption file; it does not parse; or a name leaves the
            folder.
    """

    def __init__(
        self,
        data_dir: Path,
        captions: str | None = None,
        image_dir: str | None = None,
        columns: str | None = None,
        held_out: str | None = None,
    ) -> None:
        data_dir = Path(data_dir)
        self._data_dir, self._image_dir = data_dir, image_dir
        self._images = images = ImageFolder(data_dir / (image_dir or ""))
        self._entries: dict[str, _Entry] = {}
        self._notes: list[str] = []
        entries, notes, reasons, divided = self._entries, self._notes, {}, held_out is not None
        options = {"columns": columns, "images": images, "divided": divided}
        read = functools.cache(functools.partial(read_caption_file, **options))
        paths = find_caption_files(data_dir, captions, images, read, reasons)
        self._files = _read_all(paths, read, data_dir, images, captions)
        notes += [note for file in self._files for note in file.notes]
        for file, (_, of_file) in zip(
            _told_apart(self._files, data_dir, notes), paths, strict=True
        ):
            notes += _gather(file, None if divided else of_file, images, entries)
        self._listed = _listed(self._files)
        self.used = {path for file in self._files for path in file.used}
        names = [name for name, entry in entries.items() if entry.stored is None]
        self._nearly = images.find_nearly(names)
        named = {*entries, *self._nearly.values()}
        there = {*images.all_names}
        given = any(entry.split for entry in entries.values())
        if not given and not divided:
            lists = _take_lists(data_dir, self._files, entries, notes, reasons)
            self.used.update(lists)
            given = bool(lists) or _take_folders(there, self._nearly, entries, notes)
        if given:
            _check_groups(self._listed, entries)
            self._places = None
        else:
            self._places = _divide(entries, there | self._nearly.keys(), held_out, notes)
        self._uncaptioned = tuple(name for name in images.all_names if name not in named)
        self._left = [
            *unread_images(self._uncaptioned),
            *unread_files(data_dir, self.used, reasons),
        ]

    def split(self, split: str, limit: int | None = None) -> Split:
        """Returns a split in the order of the files, each image once.

        Images without a file or without a caption are skipped; no image is opened. An image's id is
        its name with forward slashes, in Unicode's NFC form.

        Args:
            split: "train", "dev" or "test".
            limit: Take only so many examples.

        Raises:
            DataError: No image of the split can be used.
        """
        entries, notes, listed = self._entries, self._notes, self._listed
        chosen = {name: entry for name, entry in entries.items() if entry.split == split}
        if not chosen:
            found = f"{listed} names no image of the {split} split: of its {len(entries)} images"
            if self._places is None:
                told = f"Give some of the images the split {split}, or let names divide all of "
                told += "them: `--data.held-out 0.1,0.2`."
            elif any(entry.group for entry in entries.values()):
                told = "Groups are kept together: add images of other groups, or leave the groups "
                told += "out."
            else:
                told = "Add images."
            raise DataError(" ".join([f"{found} it has {_sizes(entries)}. {told}", *notes]))
        examples, skipped, blank = [], [], 0
        for name, entry in chosen.items():
            if len(examples) == limit:
                break
            blank += entry.blank
            image = entry.stored or self._images.find(self._nearly.get(name, name))
            if image is not None and entry.captions:
                known = {"group": entry.group, "identifier": entry.identifier}
                examples.append(Example(name, image, tuple(entry.captions), **known))
            elif image is not None:
                skipped.append((name, f"{NO_CAPTIONS} in {entry.file}"))
            else:
                near = self._images.near_match(name)
                lost = f"{NO_FILE} in {self._image_dir or 'the data folder'}"
                skipped.append((name, f"{lost}; {near}" if near else lost))
        for name, near in islice(self._nearly.items(), 1):
            found = f"{len(self._nearly)} images were found by the only file of nearly their name"
            notes = [*notes, f"{found}, such as {name} by {near}."]
        details = {
            "blank_captions": blank,
            "uncaptioned": self._uncaptioned,
            "notes": tuple(dict.fromkeys([*notes, *self._left])),
            "skipped_identifiers": {
                chosen[name].identifier: name for name, _ in skipped if chosen[name].identifier
            },
            "held_out": None if self._places is None else ",".join(map(str, self._places)),
        }
        try:
            return usable_split(
                split, examples, skipped, f"the {split} split of {listed}", **details
            )
        except DataError as error:
            from training.data.readers.caption_files import advice

            reasons = [reason for _, reason in skipped]
            told = advice.without_images(self._data_dir, self._images.all_names, reasons)
            raise DataError(" ".join([f"{error}{told}", *details["notes"]])) from error


def _read_all(
    paths: Sequence[tuple[Path, str | None]],
    read: Callable[[Path], CaptionFile],
    data_dir: Path,
    images: ImageFolder,
    named: str | None,
) -> list[CaptionFile]:
    """Reads caption files; the error of one says how to do without it."""
    files = []
    for path, _ in paths:
        try:
            files.append(read(path))
        except DataError as error:
            from training.data.readers.caption_files import advice

            others = [other for other, _ in paths if other != path]
            told = advice.reading_without(path, others, data_dir, images.root, named)
            raise DataError(f"{error}{told}") from error
    return files


def _take_lists(
    data_dir: Path,
    files: Sequence[CaptionFile],
    entries: dict[str, _Entry],
    notes: list[str],
    reasons: dict[Path, str],
) -> Iterable[Path]:
    """Gives images the splits of lists, and returns the lists.

    Images in none of the lists are removed; `reasons` gets why lists are not used.
    """
    read = [file.path for file in files]
    inner = folders_in(data_dir)
    deeper = islice((one for folder in inner for one in folders_in(folder)), MANY)
    folders = dict.fromkeys((data_dir, *(path.parent for path in read), *inner, *deeper))
    splits, lists, rejected = listed_splits(islice(folders, MANY), entries, read)
    reasons |= rejected
    if not splits:
        return ()
    rest = [name for name in entries if name not in splits]
    for name in rest:
        del entries[name]
    for name, entry in entries.items():
        entry.split = splits[name]
    named = ", ".join(inside_of(data_dir, file) for file in lists)
    left = f"; {len(rest)} images in none of them are left out" if rest else ""
    if unknown := sum(lists.values()):
        left += f"; {unknown} of their entries name no image with captions"
    otherwise = "`--data.held-out 0.1,0.2` divides by names instead"
    notes.append(f"The splits are those of {named}{left}; {otherwise}.")
    return lists


def _take_folders(
    files: set[str], nearly: Mapping[str, str], entries: Mapping[str, _Entry], notes: list[str]
) -> bool:
    """Gives images the splits that their folders name, if all do, with train and dev among them.

    `nearly` has the names of `files` that entries mean, where those differ from their own.
    """
    names = {name: nearly.get(name, name) for name in entries}
    here = [name for name, entry in entries.items() if entry.stored or names[name] in files]
    splits = {name: split_in(PurePosixPath(names[name]).parts[:-1]) for name in here}
    there = [split for split in SPLITS if split in splits.values()]
    if None in splits.values() or len(there) < 2:
        return False
    if "train" not in there or "dev" not in there:
        notes.append(
            f"The images' folders name only {' and '.join(there)}: names divide the images instead."
        )
        return False
    for name, entry in entries.items():
        entry.split = splits.get(name, "train")
    notes.append(
        f"The splits are those of the images' folders: of {len(entries)} images, {_sizes(entries)}."
    )
    return True


def _told_apart(
    files: Sequence[CaptionFile], data_dir: Path, notes: list[str]
) -> Sequence[CaptionFile]:
    """Puts the name of its file before each stored image, if images of several share a name."""
    name = name_of_several(record for file in files for record in file.records)
    if name is None:
        return files
    notes.append(
        f"Several files have an image {name}: the name of its file stands before each image's."
    )
    apart = []
    for file in files:
        place = Path(inside_of(data_dir, file.path, quoted=False)).with_suffix("").as_posix()
        records = [
            record
            if record.stored is None
            else dataclasses.replace(record, image=f"{place}/{record.image}")
            for record in file.records
        ]
        apart.append(dataclasses.replace(file, records=tuple(records)))
    return apart


def _listed(files: Sequence[CaptionFile]) -> str:
    return str(files[0].path) + (f" (and {len(files) - 1} more)" if len(files) > 1 else "")


def _gather(
    file: CaptionFile, of_file: str | None, images: ImageFolder, entries: dict[str, _Entry]
) -> list[str]:
    """Adds the entry of every image, in the order of the file; returns notes."""
    path, records = file.path, file.records
    named = any(record.split for record in records)
    beside, names, absolute, several = _folder_of(path, images), {}, {}, 0
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
            if beside and record.stored is None:
                name = images.below(beside, name) or name
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
        several += (entry.identifier or record.identifier) != record.identifier
        entry.identifier = entry.identifier or record.identifier
        entry.stored = entry.stored or record.stored
    notes = []
    if several:
        what = "entries have the name of an image before them with another id"
        notes.append(f"{path.name}: {several} {what}; their captions are put together.")
    for first, found in islice(absolute.items(), 1):
        taken = f"{len(absolute)} paths are taken by their ends"
        notes.append(f"{path.name}: {taken}: {first} is {found}.")
    return notes


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
) -> tuple[float, ...]:
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
