"""Flickr8k and Flickr30k in their published layouts.

    Flickr8k
        Flicker8k_Dataset/*.jpg                           (or Flickr8k_Dataset)
        Flickr8k.token.txt                                NAME.jpg#K<TAB>caption
        Flickr_8k.{trainImages,devImages,testImages}.txt  one NAME.jpg per line; any of the three
        dataset_flickr8k.json                             instead of the lists: Karpathy's splits
    Flickr30k
        flickr30k-images/*.jpg                            (or flickr30k_images)
        results_20130124.token                            NAME.jpg#K<TAB>caption
        dataset_flickr30k.json                            Karpathy's splits

Karpathy's files contain the captions too, so the caption file may then be missing.

References:
    Hodosh, Young and Hockenmaier (2013), "Framing Image Description as a Ranking Task"; Young et
    al. (2014), "From Image Descriptions to Visual Denotations"; Karpathy and Li (2015),
    arXiv:1412.2306.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sat_tf.util.errors import invalid_value
from training.data.config import DataSet
from training.data.examples import (
    NO_CAPTIONS,
    NO_FILE,
    SPLITS,
    DataError,
    Example,
    Split,
    usable_split,
)
from training.data.readers import coco
from training.data.readers.records import (
    CaptionFile,
    Record,
    captions_in,
    fail,
    finished,
    lines,
    parse_json,
    read_text,
    shown_names,
    split_in,
)


class Layout(NamedTuple):
    """Names in the folder of a data set."""

    title: str
    image_folders: tuple[str, ...]  # any of them
    caption_file: str  # captions as published
    karpathy_file: str  # Karpathy's splits and captions
    list_files: dict[str, str]  # split -> list, where published


LAYOUTS = {
    "flickr8k": Layout(
        "Flickr8k",
        ("Flicker8k_Dataset", "Flickr8k_Dataset"),
        "Flickr8k.token.txt",
        "dataset_flickr8k.json",
        {split: f"Flickr_8k.{split}Images.txt" for split in SPLITS},
    ),
    "flickr30k": Layout(
        "Flickr30k",
        ("flickr30k-images", "flickr30k_images"),
        "results_20130124.token",
        "dataset_flickr30k.json",
        {},
    ),
}

_TOKEN = re.compile(r"(?P<name>[^\t]*[^\t\s])\s*#(?P<number>[0-9]+)(?:[ ]*\t(?P<caption>.*)|\s*)")


def read(data_dir: Path, data: DataSet) -> tuple[tuple[Path, ...], Callable[[str], Split]]:
    """Returns the caption files and lists, and a function that loads a split by name.

    The splits are the official ones by default, if there are any.

    Raises:
        ValueError: The data set has no such splits.
        DataError: The folder has another layout.
    """
    layout = LAYOUTS[data.name]
    official = (data.splits or "official") == "official" and bool(layout.list_files)
    if data.splits == "official" and not official:
        expected = f"karpathy, as {layout.title} has no official splits"
        raise invalid_value("--data.splits", expected, repr(data.splits))
    lists = [*layout.list_files.values()] if official else [layout.karpathy_file]
    files = [data_dir / name for name in (layout.caption_file, *lists)]
    folders = [data_dir / name for name in layout.image_folders if (data_dir / name).is_dir()]
    wanted = {f"{layout.image_folders[0]}/": folders}
    if official:
        wanted[layout.caption_file] = files[0].is_file()
    wanted["one of " * official + ", ".join(lists)] = any(map(Path.is_file, files[1:]))
    if missing := [name for name, found in wanted.items() if not found]:
        there = sorted(f"{one.name}/" if one.is_dir() else one.name for one in data_dir.iterdir())
        raise DataError(
            f"{data_dir} is not a {layout.title} folder. Missing: {'; '.join(missing)}. "
            f"Found: {shown_names(there) or 'an empty folder'}. Images with a caption file of "
            "another layout: `--recipe folder_soft`."
        )
    load = functools.partial(_load, data_dir, layout, folders[0], official, data.limit)
    return tuple(filter(Path.is_file, files)), load


def _load(
    data_dir: Path, layout: Layout, images: Path, official: bool, limit: int | None, split: str
) -> Split:
    """Loads one split in the order of its list, each image once.

    Images without a file or without a caption are skipped; no image is opened.

    Raises:
        DataError: The split's list is missing or empty, a line of the captions does not parse, or
            no image of the split can be used.
    """
    caption_file, captions = data_dir / layout.caption_file, {}
    if official:
        listed = data_dir / layout.list_files[split]
        names = _read_list(split, listed, layout)
    else:
        path = data_dir / layout.karpathy_file
        records = coco.read_karpathy(path, parse_json(read_text(path), path)).records
        own = [r for r in records if split_in(r.split, path, r.place) == split]
        captions = {r.image: r.captions for r in own}
        names, listed = list(captions), f"the {split} split of {path}"
        if not names:
            raise DataError(f"{path} names no image of the {split} split.")
    if official or caption_file.is_file():
        captions = {r.image: r.captions for r in read_tokens(caption_file).records}
    else:
        caption_file = path
    # One listing instead of thousands of look-ups; a name that contains a path is never found.
    with os.scandir(images) as entries:
        present = {entry.name for entry in entries if entry.is_file()}
    examples, skipped = [], []
    for name in names:
        if len(examples) == limit:
            break
        if name not in present:
            skipped.append((name, f"{NO_FILE} in {images.name}"))
        elif not captions.get(name):
            skipped.append((name, f"{NO_CAPTIONS} in {caption_file.name}"))
        else:
            examples.append(Example(name, images / name, captions[name]))
    return usable_split(split, examples, skipped, str(listed))


def _read_list(split: str, path: Path, layout: Layout) -> list[str]:
    """Returns the names of a split's images, each once."""
    if not path.is_file():
        lists = layout.list_files.values()
        present = ", ".join(name for name in lists if (path.parent / name).is_file())
        raise DataError(
            f"{path.parent} has no {split} split: {path.name} is missing. Lists there: {present}."
        )
    names = list(dict.fromkeys(line.strip() for _, line in lines(path)))
    if not names:
        raise DataError(f"{path} is empty: expected the name of an image on each line.")
    return names


def has_token_lines(path: Path) -> bool:
    """Returns whether a file begins with a line NAME#K<TAB>caption."""
    found = lines(path)
    return bool(found and _TOKEN.fullmatch(found[0][1]))


def read_tokens(path: Path) -> CaptionFile:
    """Reads a file of lines NAME.jpg#K<TAB>caption; the captions of an image are in the order of K.

    Raises:
        DataError: A line has another form, or a number has two captions; the message names it.
    """
    found: dict[str, tuple[int, dict[int, str]]] = {}
    before = 0
    for number, line in lines(path):
        match = _TOKEN.fullmatch(line)
        if match is None:
            end = f"; is it the end of line {before}? Then join the two" if before else ""
            fail(path, f"line {number}", f"expected NAME.jpg#K<TAB>caption, got {line[:80]!r}{end}")
        before = number
        name, key = match["name"].strip(), int(match["number"])
        caption = (match["caption"] or "").replace("\t", " ").strip()
        _, captions = found.setdefault(name, (number, {}))
        if captions.setdefault(key, caption) != caption:
            fail(path, f"line {number}", f"a second, different caption {name}#{key}")
    records = []
    for name, (number, captions) in found.items():
        place = f"line {number}"
        texts = captions_in([text for _, text in sorted(captions.items())], path, place)
        records.append(Record(name, texts, place))
    return finished(path, records)
