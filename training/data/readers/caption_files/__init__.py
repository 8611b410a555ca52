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
    roles.py, columns.py    which column or key has which role: what is plain, and the guess
    tables.py, objects.py, stored.py    the readers

To add a format, write its reader, a function from a `Source` to `Record`s, and enter it in
`READERS` of `account` and `_reader_of`.

References:
    Chen et al. (2015), "Microsoft COCO Captions", arXiv:1504.00325; Karpathy and Li (2015), "Deep
    Visual-Semantic Alignments for Generating Image Descriptions", arXiv:1412.2306.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from training.data.config import parse_columns
from training.data.examples import DataError
from training.data.readers.account import READERS
from training.data.readers.caption_files.records import CaptionFile, Record, Source
from training.data.readers.image_folder import ImageFolder


def read_caption_file(
    path: Path, columns: str | None = None, images: ImageFolder | None = None, divided: bool = False
) -> CaptionFile:
    """Reads a caption file.

    Args:
        path: The file; a folder for pairs of image and text.
        columns: Roles of columns by the user, `image=NAME,caption=NAME`.
        images: The images, for a form that only their names can settle; None for those beside
            the file.
        divided: Whether names divide the images, so that splits in the file are not read.

    Raises:
        DataError: The file cannot be read, does not parse, or names no image.
    """
    try:
        of_pairs = stat.S_ISDIR(path.stat().st_mode)
        suffix = next((one for one in READERS if path.name.lower().endswith(one)), None)
        if suffix is None and not of_pairs:
            from training.data.readers.caption_files import advice

            kinds = ", ".join(f"*{suffix}" for suffix in READERS)
            raise DataError(f"{path}: expected a file named {kinds}.{advice.on_files([path])}")
        images = images or ImageFolder(path if of_pairs else path.parent)
        source = Source(path, images, parse_columns(columns), divided)
        records = tuple(_reader_of(None if of_pairs else READERS[suffix])(source))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    if not records:
        raise DataError(f"{path} holds no image.")
    return CaptionFile(path, records, source.finished(), frozenset({path, *source.used}))


def _reader_of(kind: str | None) -> Callable[[Source], Iterable[Record]]:
    """Returns the reader of a kind of file, None for a folder; others are not loaded."""
    if kind in ("table", "tokens"):
        from training.data.readers.caption_files.tables import read_table, read_tokens

        return read_table if kind == "table" else read_tokens
    if kind in ("lines", "object", "cvat"):
        from training.data.readers.caption_files.objects import read_cvat, read_json, read_jsonl

        return {"lines": read_jsonl, "object": read_json}.get(kind, read_cvat)
    from training.data.readers.caption_files.stored import read_pairs, read_parquet, read_tar

    return {"parquet": read_parquet, "tar": read_tar}.get(kind, read_pairs)
