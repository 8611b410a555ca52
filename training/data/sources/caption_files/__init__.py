"""Caption files as people have them, read into one kind of record.

    CSV           a row per caption or image, any separator, with or without a header; *.tsv, *.txt
    token lines   NAME.jpg#K<TAB>caption and NAME.jpg#xx#K caption; *.token, *.token.txt, *.txt
    JSONL, JSON   records with an image and its captions, as a list, by name, or by split
    COCO JSON     {"images": [{"id", "file_name"[, "split"]}],
                   "annotations": [{"image_id", "caption"}]}
    Karpathy JSON {"images": [{"filename", "split", "sentences": [{"raw"}]}]}
    tools         Label Studio (JSON), CVAT (XML for images, Datumaro's JSON), VIA (JSON)
    other JSON    records deeper in it, and values in objects within them
    with images   webdataset's tars, Parquet with or without images, NAME.txt beside NAME.jpg

All text is UTF-8, with or without a byte-order mark. A file that does not parse is an error that
names the file and the line, or the place inside one JSON value.

    records.py    the record, and the door for values that every reader shares
    columns.py    which column or key has which role
    tables.py, objects.py, tools.py, stored.py    the readers

To add a format, write its reader, a function from a `Source` to `Record`s, and enter it in
`_READERS` and `_reader_of`.

References:
    Chen et al. (2015), "Microsoft COCO Captions", arXiv:1504.00325; Karpathy and Li (2015), "Deep
    Visual-Semantic Alignments for Generating Image Descriptions", arXiv:1412.2306.
"""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from itertools import filterfalse, islice
from pathlib import Path

from training.data.config import parse_columns
from training.data.examples import DataError
from training.data.sources.caption_files.columns import is_image_name
from training.data.sources.caption_files.records import (
    IMAGE_SUFFIXES,
    PAIRED,
    CaptionFile,
    FolderNames,
    Record,
    Source,
    lines,
)

SUFFIXES = (".csv", ".jsonl", ".json", ".token", ".token.txt", ".parquet", ".tar")
SUFFIXES += (".jsonlines", ".ndjson", ".manifest")
"""Names of files that are taken for caption files without being named end in one of these."""
TEXTS = (".tsv", ".txt", ".xml")
"""Folders hold such files for other ends too: taken if there is nothing else and they parse."""
_SPREADSHEETS = (".xlsx", ".xls", ".ods", ".numbers")
_TO_CSV = "write its captions to a CSV image,caption, and its images to files"
_BINARY = {
    ".arrow": 'save the data set of Hugging Face with `.to_parquet("train.parquet")`',
    **dict.fromkeys((".tfrecord", ".tfrecords", ".pkl", ".h5", ".hdf5", ".mat", ".npz"), _TO_CSV),
    **dict.fromkeys((".mdb", ".lmdb", ".feather"), _TO_CSV),
    **dict.fromkeys((".db", ".sqlite", ".sqlite3", ".sql"), "export its table as CSV or JSON"),
}
_OTHERS = (".md", ".py", ".ipynb", ".sh", ".yaml", ".yml", ".pdf", ".html", *IMAGE_SUFFIXES)
_PACKED = (".zip", ".gz", ".tgz", ".7z", ".rar")
_HOLDING = (*SUFFIXES, *TEXTS, *PAIRED, *_SPREADSHEETS, *_BINARY, *_PACKED, ".lst", ".npy")
_ABOUT = (".", "readme", "license", "licence", "requirements", "thumbs")


def read_captions(path: Path) -> tuple[Record, ...]:
    """Reads the records of a caption file, in order; see `read_caption_file`."""
    return read_caption_file(path).records


def read_caption_file(
    path: Path, columns: str | None = None, root: Path | None = None, divided: bool = False
) -> CaptionFile:
    """Reads a caption file; again only if it has changed.

    Args:
        path: The file; a folder for pairs of image and text.
        columns: Roles of columns by the user, `image=NAME,caption=NAME`.
        root: Folder of the images, for a form that only their names can settle.
        divided: Whether names divide the images, so that splits in the file are not read.

    Raises:
        DataError: The file cannot be read, does not parse, or names no image.
    """
    try:
        status = path.stat()
        changed = status.st_mtime_ns
        if path.is_dir():  # which does not change with its files
            from training.data.sources.caption_files.stored import pairs

            changed = hash(tuple((text, os.stat(text).st_mtime_ns) for _, text, _ in pairs(path)))
        return _read(path, columns, root, divided, changed, status.st_size)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error


@functools.lru_cache(maxsize=16)
def _read(
    path: Path, columns: str | None, root: Path | None, divided: bool, changed: int, size: int
) -> CaptionFile:
    name = path.name.lower()
    suffix = next((suffix for suffix in _READERS if name.endswith(suffix)), None)
    if suffix is None and not path.is_dir():
        kinds = ", ".join(f"*{suffix}" for suffix in _READERS)
        raise DataError(f"{path}: expected a file named {kinds}.{advice_without_captions([path])}")
    source = Source(path, parse_columns(columns), FolderNames(root), divided)
    records = tuple(_reader_of(None if path.is_dir() else _READERS[suffix])(source))
    if not records:
        raise DataError(f"{path} holds no image.")
    return CaptionFile(path, records, source.finished(), frozenset({path, *source.used}))


def may_hold_captions(name: str) -> bool:
    """Returns whether a file may hold captions, or lists of images, by its name."""
    small = name.lower()
    return small.endswith(_HOLDING) and not small.startswith(_ABOUT)


def advice_without_captions(paths: Sequence[Path], tried: Sequence[Path] = ()) -> str:
    """Returns a sentence on what there is instead of a caption file, if it can become one.

    Args:
        paths: Files of the folder.
        tried: Those of them that were read, and hold no captions as they are.
    """
    for path in paths:
        suffix, file = path.suffix.lower(), shlex.quote(path.name)
        if suffix in _SPREADSHEETS:
            return f" {path.name} is a spreadsheet: save it as CSV (UTF-8)."
        if suffix in _PACKED:
            return f" {path.name} is packed: unpack it in the folder."
        if suffix in _BINARY:
            return f" {path.name} is not read: {_BINARY[suffix]}."
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
        if suffix not in ("", *_OTHERS, *_READERS):
            return f" If {path.name} is a table or JSON lines, rename it to *.csv or *.jsonl."
    return ""


def _names_images(path: Path) -> bool:
    """Tests if the first lines of a text file are names of images and nothing else."""
    try:
        first = [line for _, line in islice(lines(path), 5)]
    except DataError:
        return False
    return bool(first) and all(is_image_name(line) and len(line.split()) == 1 for line in first)


_READERS = {
    ".csv": "table",
    **dict.fromkeys((".jsonl", ".jsonlines", ".ndjson", ".manifest"), "lines"),
    ".json": "object",
    **dict.fromkeys((".token", ".token.txt"), "tokens"),
    ".parquet": "parquet",
    ".tar": "tar",
    ".xml": "cvat",
    **dict.fromkeys((".tsv", ".txt"), "table"),
}
"""Kind of each file, by the end of its name; of two ends that fit, the first."""


def _reader_of(kind: str | None) -> Callable[[Source], Iterable[Record]]:
    """Returns the reader of a kind of file, None for a folder; others are not loaded."""
    if kind in ("table", "tokens"):
        from training.data.sources.caption_files.tables import read_table, read_tokens

        return read_table if kind == "table" else read_tokens
    if kind in ("lines", "object"):
        from training.data.sources.caption_files.objects import read_json, read_jsonl

        return read_jsonl if kind == "lines" else read_json
    if kind == "cvat":
        from training.data.sources.caption_files.tools import read_cvat

        return read_cvat
    from training.data.sources.caption_files.stored import read_pairs, read_parquet, read_tar

    return {"parquet": read_parquet, "tar": read_tar}.get(kind, read_pairs)
