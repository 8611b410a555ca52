"""Data sets by name; each loads as a `Split` of `Example`s. Only the one used is imported."""

from __future__ import annotations

import functools
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
        folder = Path(data_dir, data.image_dir)
        raise DataError(f"`--data.image_dir`: there is no folder {folder}.")


class Source:
    """A data set whose layout was read once, and which gives its splits.

    Args:
        data: The data set and how to read it.
        data_dir: Folder of the user's copy, or TensorFlow Datasets' folder; unused for drawn data.

    Attributes:
        files: The caption files and lists that were read, as far as the data set tells.

    Raises:
        DataError: The folder is missing, or the data cannot be used.
    """

    def __init__(self, data: DataSet, data_dir: Path | None) -> None:
        self.files: tuple[Path, ...] = ()
        self.split = functools.partial(_load, data, data_dir=data_dir)
        check_there(data, data_dir)
        if data.name in ("flickr8k", "flickr30k"):
            from training.data.readers import flickr

            self.files = flickr.read_files(Path(data_dir), flickr.LAYOUTS[data.name], data.splits)
        if data.name == "folder":
            from training.data.readers.folder import read_folder

            found = read_folder(Path(data_dir), data)
            self.files, self.split = found.files, functools.partial(found.split, limit=data.limit)


def _load(data: DataSet, split: str, data_dir: Path | None) -> Split:
    if data.name == "scenes":
        from training.data.readers import scenes

        # Fewer scenes are drawn, not drawn and cut off.
        count = scenes.COUNTS[split]
        return scenes.load(split, seed=data.seed, count=min(count, data.limit or count))
    if data.name == "coco_captions":
        from training.data.readers import coco

        return coco.load(split, data_dir, data.limit)
    from training.data.readers import flickr

    return flickr.load(split, Path(data_dir), flickr.LAYOUTS[data.name], data.splits, data.limit)


def load_split(data: DataSet, split: str, data_dir: Path | None) -> Split:
    """Loads one split of a data set; see `Source`."""
    return Source(data, data_dir).split(split)
