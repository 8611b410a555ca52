"""Your own data set: a folder of images with captions, in any language.

Read in four steps, each a function: `find_files` (files), `read_captions` (records), `gather`
(images), `divide` (splits). `records.FORMS` are the forms of caption files.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sat_tf.util.commands import counted
from training.data.config import DataSet
from training.data.examples import DataError, Example, Split, usable_split
from training.data.readers.files import find_files, not_read, read_captions, unread_files
from training.data.readers.images import Image, ImageFolder, gather
from training.data.readers.splits import divide, sizes_of
from training.data.readers.tables import columns_of


@dataclass(frozen=True)
class Folder:
    """A folder that was read."""

    images: Mapping[str, Image]  # all that caption files name, each with its split
    files: tuple[Path, ...]  # caption files and lists that were read
    limit: int | None  # of the examples of a split
    places: tuple[float, ...] | None  # of the hash that divides the images, if it does
    uncaptioned: tuple[str, ...]  # image files that no caption file names
    notes: tuple[str, ...]

    def split(self, name: str) -> Split:
        """Returns a split in the order of the files; images that cannot be used are skipped.

        Args:
            name: "train", "dev" or "test".

        Raises:
            DataError: No image of the split can be used.
        """
        chosen = [image for image in self.images.values() if image.split == name]
        if not chosen:
            raise self._without(name)
        usable = [number for number, image in enumerate(chosen) if not image.lacks]
        if self.limit and self.limit <= len(usable):
            chosen = chosen[: usable[self.limit - 1] + 1]
        lost = [image for image in chosen if image.lacks]
        examples = [
            Example(one.name, one.image, tuple(one.captions), group=one.group)
            for one in chosen
            if not one.lacks
        ]
        try:
            return usable_split(
                name,
                examples,
                [(image.name, image.lacks) for image in lost],
                f"the {name} split",
                uncaptioned=self.uncaptioned,
                notes=self.notes,
                identifiers={one.identifier: one.name for one in chosen if one.identifier},
                held_out=None if self.places is None else ",".join(map(str, self.places)),
            )
        except DataError as error:
            raise DataError(" ".join([str(error), *_way_to(lost), *self.notes])) from error

    def _without(self, name: str) -> DataError:
        if self.places is None:
            way = f"Give some images the split {name}, or divide all: `--data.held-out 0.1,0.2`."
        elif any(image.group for image in self.images.values()):
            way = "Groups are kept together: add images of other groups, or leave the groups out."
        else:
            way = "Add images."
        more = f" (and {len(self.files) - 1} more)" if len(self.files) > 1 else ""
        told = f"{self.files[0]}{more} names no image of the {name} split"
        sizes = f"of its {len(self.images)} images it has {sizes_of(self.images.values())}"
        return DataError(" ".join([f"{told}: {sizes}. {way}", *self.notes]))


def _way_to(lost: list[Image]) -> list[str]:
    """What to type if the files of all images are elsewhere."""
    if any(image.image is not None for image in lost):
        return []
    near = next((image.near for image in lost if image.near), None)
    if near and PurePosixPath(near).name == PurePosixPath(lost[0].name).name:
        return [f"If that is it, add `--data.image-dir {PurePosixPath(near).parent}`."]
    return ["If another column has the names of the files, add `--data.columns image=NAME`."]


def read(data_dir: Path, data: DataSet) -> tuple[tuple[Path, ...], Callable[[str], Split]]:
    """Reads a folder: its caption files, the images that they name, and their splits.

    Returns the caption files and lists that were read, and a function that gives a split by name.

    Raises:
        DataError: The caption file is missing, or several could be it; one cannot be read; a
            name is that of several images; or splits contradict each other.
    """
    images = ImageFolder(data_dir / (data.image_dir or ""))
    columns = columns_of(data.columns)
    read_file = functools.cache(lambda path: read_captions(path, columns, images))
    found, reasons = find_files(data_dir, data.captions, images, read_file)
    files = [read_file(path) for path, _ in found]
    splits = [split for _, split in found] if data.held_out is None else None
    gathered, matched = gather(files, splits, images)
    places, lists, divided = divide(gathered, data_dir, files, data.held_out)
    named = {image.image for image in gathered.values()}
    rest = tuple(name for name in images.names if images.path_of(name) not in named)
    used = (*sorted(path for file in files for path in file.used), *lists)
    notes = [*(note for file in files for note in file.notes), *matched, *divided]
    if rest:
        what = f"{counted(len(rest), 'image')} of the folder in no caption file"
        notes.append(f"Not read: {what}, such as {rest[0]}.")
    notes += not_read(unread_files(data_dir, used), reasons.values())
    return used, Folder(gathered, used, data.limit, places, rest, tuple(notes)).split
