"""Advice on folders whose captions cannot be read as they are; loaded for errors alone."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from itertools import filterfalse, islice
from pathlib import Path, PurePosixPath

from training.data.examples import NO_FILE, DataError
from training.data.readers.account import NOT_READ, READERS, TEXTS, inside_of, unread_files
from training.data.readers.caption_files.records import IMAGE_SUFFIXES, Source
from training.data.readers.caption_files.roles import is_image_name
from training.data.readers.caption_files.stored import pairs
from training.data.readers.text_files import lines

_NO_TABLES = (".md", ".py", ".ipynb", ".sh", ".yaml", ".yml", ".pdf", ".html", *IMAGE_SUFFIXES)
_HOW = " Write one, such as captions.csv with the header image,caption and a row per caption."
_INSIDE = (
    " If they are in the images, as Lightroom and others write them: in the folder, `exiftool -use "
    "MWG -csv -r -Description . > captions.csv`."
)


def on_files(paths: Sequence[Path], tried: Sequence[Path] = ()) -> str:
    """Returns a sentence on what there is instead of a caption file, if it can become one.

    Args:
        paths: Files of the folder.
        tried: Those of them that were read, and hold no captions as they are.
    """
    for path in paths:
        suffix, file = path.suffix.lower(), shlex.quote(path.name)
        if suffix in NOT_READ:
            return f" {path.name} {NOT_READ[suffix]}."
        if suffix in TEXTS and _names_images(path):
            return (
                f" {path.name} names images; if FILE has their captions in the same order, join "
                f"them, `paste {file} FILE > captions.tsv`, and give `--data.captions "
                "captions.tsv`."
            )
    for path in filterfalse(tried.__contains__, paths):
        suffix, file = path.suffix.lower(), shlex.quote(path.name)
        if suffix in (".tsv", ".txt"):
            return f" If {path.name} is a table of captions, give `--data.captions {file}`."
        if suffix not in ("", *_NO_TABLES, *READERS):
            return f" If {path.name} is a table or JSON lines, rename it to *.csv or *.jsonl."
    return ""


def _names_images(path: Path) -> bool:
    """Tests if the first lines of a text file are names of images and nothing else."""
    try:
        first = [line for _, line in islice(lines(path), 5)]
    except DataError:
        return False
    return bool(first) and all(is_image_name(line) and len(line.split()) == 1 for line in first)


def without_captions(files: Sequence[Path], tried: Sequence[Path]) -> str:
    """Returns what to do if no file is the caption file; arguments as of `on_files`."""
    return on_files(files, tried) or (_HOW if files else _HOW + _INSIDE)


def on_texts_alone(data_dir: Path, images: Sequence[str]) -> str:
    """Returns a sentence on texts that are named like no image, if there are such."""
    for first in images[:1]:
        for unread in unread_files(data_dir, kinds=(".txt", ".caption")):
            return f" {unread} None has the name of an image, such as {first}."
    return ""


def with_several(data_dir: Path, found: Sequence[Path], of_each_image: bool) -> str:
    """Returns what to do if several files could be the caption file."""
    advice = (
        " Name the one to use with `--data.captions FILE`, or all that belong together, such as "
        "one per split, with `--data.captions FILE,FILE`."
    )
    if of_each_image and all(file.suffix == ".json" for file in found):
        folder = inside_of(data_dir, found[0].parent)
        advice += f" If each is a record of one image: `jq -s . {folder}/*.json > captions.json`."
    return advice


def reading_without(
    path: Path, others: Sequence[Path], data_dir: Path, image_dir: Path, named: str | None
) -> str:
    """Returns how to do without a caption file that cannot be read; empty if there is no way."""
    if others:
        without = ",".join(inside_of(data_dir, other) for other in others)
        return f" `--data.captions {without}` reads without it."
    if named is None and path != image_dir and next(pairs(image_dir), None):
        return " `--data.captions .` reads the files named like the images instead."
    return ""


def without_images(data_dir: Path, images: Sequence[str], reasons: Sequence[str]) -> str:
    """Returns what to do if no image of a split can be used, for these reasons."""
    packed = on_files(sorted(data_dir.iterdir()))
    if "packed" in packed:
        return packed
    if images and all(reason.startswith(NO_FILE) for reason in reasons):
        return (
            " If another column or key has the names of the files, choose it with "
            "`--data.columns image=NAME`."
        )
    return ""


def naming_lines(source: Source) -> str:
    """Returns how to add the names of images to captions that may be in their order."""
    numbers = [number for number, _ in lines(source.path)]
    count, images = len(numbers), list(map(PurePosixPath, source.images.all_names))
    places = {(image.parent, image.suffix) for image in images}
    # `paste` takes blank lines along.
    if len(places) != 1 or len(images) != count or numbers[-1] != count:
        return ""
    ((folder, suffix),) = places
    inner = os.path.relpath(source.images.root / folder, source.path.parent)
    inner = "" if inner == "." else shlex.quote(os.path.join(inner, ""))
    file = shlex.quote(source.path.name)
    listed, names = "ls", sorted(image.name for image in images)
    order = "in the order of the images' names"
    if (counted := sorted(names, key=_in_numbers)) != names:
        at = next(i for i, name in enumerate(names) if counted[i] != name)
        listed, order = "ls -v", f"{order} as one counts ({counted[at]} before {names[at]})"
    return (
        f"; if the {count} captions are {order}, add these: in the folder of the captions, "
        f"`{listed} {inner}*{suffix} | paste - {file} > named.tsv`, then `--data.captions "
        "named.tsv`"
    )


def _in_numbers(name: str) -> list[tuple[int, str]]:
    """A key that sorts names by the numbers in them: 2.jpg before 10.jpg."""
    parts = re.findall(r"\d+|\D+", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
