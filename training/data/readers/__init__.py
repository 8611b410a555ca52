"""Data sets by name; each loads as a `Split` of `Example`s, by a module that is imported for it."""

from __future__ import annotations

from pathlib import Path

from training.data.config import DataSet
from training.data.examples import DataError, Split


def check_there(data: DataSet, data_dir: Path | None) -> None:
    """Checks that the folders and files that a configuration names are there; reads none.

    Raises:
        ValueError: One is missing.
    """
    if data.name in ("scenes", "coco_captions"):
        return
    if data_dir is None:
        raise DataError(
            f"{data.name} is read from your own copy: name its folder with `--data-dir`."
        )
    if not Path(data_dir).is_dir():
        raise DataError(f"`--data-dir {data_dir}`: there is no such folder.")
    if data.image_dir is not None and not Path(data_dir, data.image_dir).is_dir():
        images = Path(data_dir, data.image_dir)
        raise DataError(f"`--data.image_dir`: there is no folder {images}.")


class Source:
    """A data set with its layout read once; gives the splits.

    Args:
        data: The data set and how to read it.
        data_dir: Folder of the user's copy, or TensorFlow Datasets' folder; unused for drawn data.

    Attributes:
        files: The caption files and lists that were read, as far as the data set names them.
        split: Loads a split, "train", "dev" or "test".

    Raises:
        DataError: The folder is missing, or the data cannot be used.
    """

    def __init__(self, data: DataSet, data_dir: Path | None) -> None:
        check_there(data, data_dir)
        match data.name:
            case "scenes":
                from training.data.readers.scenes import read
            case "coco_captions":
                from training.data.readers.coco import read
            case "folder":
                from training.data.readers.folder import read
            case _:
                from training.data.readers.flickr import read
        self.files, self.split = read(None if data_dir is None else Path(data_dir), data)


def load_split(data: DataSet, split: str, data_dir: Path | None) -> Split:
    """Loads one split of a data set; see `Source`."""
    return Source(data, data_dir).split(split)
