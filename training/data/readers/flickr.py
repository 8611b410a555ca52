"""Flickr8k and Flickr30k in the folder layouts in which they are published.

    Flickr8k
        Flicker8k_Dataset/*.jpg                           (or Flickr8k_Dataset)
        Flickr8k.token.txt                                NAME.jpg#K<TAB>caption
        Flickr_8k.{trainImages,devImages,testImages}.txt  one NAME.jpg per line; any of the three
        dataset_flickr8k.json                             instead of the lists: Karpathy's splits
    Flickr30k
        flickr30k-images/*.jpg                            (or flickr30k_images)
        results_20130124.token                            NAME.jpg#K<TAB>caption
        dataset_flickr30k.json                            Karpathy's splits

Karpathy's files contain the captions too, so the caption file may be missing beside one.

References:
    Hodosh, Young and Hockenmaier (2013), "Framing Image Description as a Ranking Task"; Young et
    al. (2014), "From Image Descriptions to Visual Denotations"; Karpathy and Li (2015),
    arXiv:1412.2306.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sat_tf.util.errors import invalid_value
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
)


@dataclass(frozen=True)
class Layout:
    """Names in the folder of a data set."""

    title: str
    image_folders: tuple[str, ...]  # any of them
    caption_file: str  # captions as published
    karpathy_file: str  # Karpathy's splits and captions
    list_files: dict[str, str] = field(default_factory=dict)  # split -> list, where published


FLICKR8K = Layout(
    "Flickr8k",
    ("Flicker8k_Dataset", "Flickr8k_Dataset"),
    "Flickr8k.token.txt",
    "dataset_flickr8k.json",
    {split: f"Flickr_8k.{split}Images.txt" for split in SPLITS},
)
FLICKR30K = Layout(
    "Flickr30k",
    ("flickr30k-images", "flickr30k_images"),
    "results_20130124.token",
    "dataset_flickr30k.json",
)
LAYOUTS = {"flickr8k": FLICKR8K, "flickr30k": FLICKR30K}

_SHOWN, _START = 10, 2**16  # names in an error; bytes that hold the first line
_TOKEN = re.compile(r"(?P<name>[^\t]*[^\t\s])\s*#(?P<number>[0-9]+)(?:[ ]*\t(?P<caption>.*)|\s*)")


def load(
    split: str,
    data_dir: Path,
    layout: Layout = FLICKR8K,
    splits: Literal["official", "karpathy"] | None = None,
    limit: int | None = None,
) -> Split:
    """Loads one split in the order of its list, each image once.

    Images without a file or without a caption are skipped; no image is opened. The splits are the
    official ones by default, if there are any.

    Raises:
        ValueError: The data set has no such splits.
        DataError: The folder has another layout, the split's list is missing or empty, a line of
            the captions does not parse, or no image of the split can be used.
    """
    splits = splits or ("official" if layout.list_files else "karpathy")
    if splits == "official" and not layout.list_files:
        expected = f"karpathy, as {layout.title} has no official splits"
        raise invalid_value("--data.splits", expected, repr(splits))
    image_dir = _image_folder(data_dir, layout, splits)
    caption_file, captions = data_dir / layout.caption_file, {}
    if splits == "official":
        names, listed = _read_list(split, data_dir, layout)
    else:
        path = data_dir / layout.karpathy_file
        records = coco.read_karpathy(path, parse_json(read_text(path), path)).records
        captions = {r.image: r.captions for r in records if r.split == split}
        names, listed = list(captions), f"the {split} split of {path}"
        if not names:
            raise DataError(f"{path} names no image of the {split} split.")
    if splits == "official" or caption_file.is_file():
        captions = {r.image: r.captions for r in read_tokens(caption_file).records}
    else:
        caption_file = path
    # One listing instead of thousands of look-ups; a name that contains a path is never found.
    with os.scandir(image_dir) as entries:
        present = {entry.name for entry in entries if entry.is_file()}
    examples, skipped = [], []
    for name in names:
        if len(examples) == limit:
            break
        if name not in present:
            skipped.append((name, f"{NO_FILE} in {image_dir.name}"))
        elif not captions.get(name):
            skipped.append((name, f"{NO_CAPTIONS} in {caption_file.name}"))
        else:
            examples.append(Example(name, image_dir / name, captions[name]))
    return usable_split(split, examples, skipped, listed)


def read_files(data_dir: Path, layout: Layout, splits: str | None = None) -> tuple[Path, ...]:
    """Returns the caption files and lists that `load` reads for any split."""
    official = (splits or "official") == "official" and layout.list_files
    lists = layout.list_files.values() if official else [layout.karpathy_file]
    files = (data_dir / name for name in (layout.caption_file, *lists))
    return tuple(file for file in files if file.is_file())


def _image_folder(data_dir: Path, layout: Layout, splits: str) -> Path:
    """Returns the folder of images of a data set that has the whole layout."""
    folders, lists = layout.image_folders, layout.list_files.values()
    wanted = {f"{folders[0]}/": any((data_dir / name).is_dir() for name in folders)}
    if splits == "official":
        wanted[layout.caption_file] = (data_dir / layout.caption_file).is_file()
        wanted["one of " + ", ".join(lists)] = any((data_dir / name).is_file() for name in lists)
    else:
        wanted[layout.karpathy_file] = (data_dir / layout.karpathy_file).is_file()
    missing = [name for name, found in wanted.items() if not found]
    if missing:
        raise DataError(
            f"{data_dir} is not a {layout.title} folder. Missing: {'; '.join(missing)}. "
            f"Found: {_contents(data_dir)}. Images with a caption file of another layout: "
            "`--recipe folder_soft`."
        )
    return next(data_dir / name for name in folders if (data_dir / name).is_dir())


def _contents(folder: Path) -> str:
    if not folder.is_dir():
        return "a file, not a folder" if folder.exists() else "nothing, there is no such folder"
    names = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in folder.iterdir())
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more if names else "an empty folder"


def _read_list(split: str, data_dir: Path, layout: Layout) -> tuple[list[str], str]:
    """Returns the names of a split's images, each once, and where they are listed."""
    path = data_dir / layout.list_files[split]
    if not path.is_file():
        present = [name for name in layout.list_files.values() if (data_dir / name).is_file()]
        raise DataError(
            f"{data_dir} has no {split} split: {path.name} is missing. "
            f"Lists there: {', '.join(present)}."
        )
    names = list(dict.fromkeys(line.strip() for _, line in lines(path)))
    if not names:
        raise DataError(f"{path} is empty: expected the name of an image on each line.")
    return names, str(path)


def has_token_lines(path: Path) -> bool:
    """Returns whether a file begins with a line NAME#K<TAB>caption."""
    with path.open("rb") as file:
        start = file.read(_START).removeprefix(b"\xef\xbb\xbf").decode("utf-8", "ignore").lstrip()
    return bool(_TOKEN.fullmatch(re.split(r"[\r\n]", start, maxsplit=1)[0]))


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
        texts = [captions_in(text, path, place) for _, text in sorted(captions.items())]
        of = tuple(text for one, _ in texts for text in one)
        records.append(Record(name, of, place, blank=sum(missing for _, missing in texts)))
    return finished(path, records)
