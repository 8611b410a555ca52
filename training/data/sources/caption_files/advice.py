"""Advice on folders whose captions cannot be read as they are; loaded for errors alone."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import filterfalse
from pathlib import Path

from training.data.examples import NO_FILE
from training.data.sources.account import NOT_READ, READERS, inside_of, unread_files
from training.data.sources.caption_files.records import IMAGE_SUFFIXES

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
        suffix = path.suffix.lower()
        if suffix in NOT_READ:
            return f" {path.name} {NOT_READ[suffix]}."
    for path in filterfalse(tried.__contains__, paths):
        suffix, file = path.suffix.lower(), shlex.quote(path.name)
        if suffix in (".tsv", ".txt"):
            return f" If {path.name} is a table of captions, give `--data.captions {file}`."
        if suffix not in ("", *_NO_TABLES, *READERS):
            return f" If {path.name} is a table or JSON lines, rename it to *.csv or *.jsonl."
    return ""


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
