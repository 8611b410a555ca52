"""Data sets by name; each loads as a `Split` of `Example`s."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from training.data.examples import DataError, Split
from training.data.sources import coco, flickr, folder, scenes

if TYPE_CHECKING:
    from training.config import DataConfig

DataName = Literal["scenes", "flickr8k", "flickr30k", "coco_captions", "folder"]
Splits = Literal["official", "karpathy"]
"""Authors of the splits, for a data set that has several."""


def load_split(data: DataConfig, split: str, data_dir: Path | None) -> Split:
    """Loads one split of a data set.

    Args:
        data: The data set and how to read it.
        split: One of `SPLITS`.
        data_dir: Folder of the user's copy, or TensorFlow Datasets' folder; unused for drawn data.

    Raises:
        DataError: The folder is missing, or the data cannot be used.
    """
    if data.name == "scenes":
        # Fewer scenes are drawn, not drawn and cut off.
        count = scenes.COUNTS[split]
        return scenes.load(split, seed=data.seed, count=min(count, data.limit or count))
    if data.name == "coco_captions":
        return coco.load(split, data_dir, data.limit)
    if data_dir is None:
        raise DataError(
            f"{data.name} is read from your own copy: name its folder with `--data-dir`."
        )
    data_dir = Path(data_dir)
    if not data_dir.is_dir():
        raise DataError(f"`--data-dir {data_dir}`: there is no such folder.")
    if data.name == "folder":
        return folder.load(
            split,
            data_dir,
            captions=data.captions,
            image_dir=data.image_dir,
            columns=data.columns,
            held_out=data.held_out,
            limit=data.limit,
        )
    return flickr.load(split, data_dir, flickr.LAYOUTS[data.name], data.splits, data.limit)
