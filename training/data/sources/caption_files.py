"""Caption files in five formats, read into one kind of record.

    CSV           a header image,caption[,split], then one caption per row; also *.tsv and *.txt
    JSONL         {"image": ..., "captions": [...], "split": ...}, one image per line
    COCO JSON     {"images": [{"id", "file_name"[, "split"]}],
                   "annotations": [{"image_id", "caption"}]}
    Karpathy JSON {"images": [{"filename", "split", "sentences": [{"raw"}]}]}
    Flickr tokens NAME.jpg#K<TAB>caption, one caption per line; *.token, or *.token.txt

All are UTF-8, with or without a byte-order mark. A file that does not parse is an error that names
the file and the line, or the place inside one JSON value.

To add a format, write its reader, a function from the path to `Record`s, and enter it in `_READERS`
at the end.

References:
    Chen et al. (2015), "Microsoft COCO Captions", arXiv:1504.00325; Karpathy and Li (2015), "Deep
    Visual-Semantic Alignments for Generating Image Descriptions", arXiv:1412.2306.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from sat_tf.images import SUFFIXES as READ_SUFFIXES
from training.data.examples import DataError, canonical_split

SUFFIXES = (".csv", ".jsonl", ".json")
"""Names of files that are taken for caption files without being named end in one of these."""
IMAGE_SUFFIXES = (*READ_SUFFIXES, ".heic")  # refused later, with advice
CSV_COLUMNS = ("image", "caption", "split")
# Spreadsheets of many countries write a semicolon for the comma.
_DELIMITERS = ",;\t"
_TEXTS = (".tsv", ".txt")  # read as CSV if they are named; folders hold such files for other ends
_SPREADSHEETS = (".xlsx", ".xls", ".ods", ".numbers")
_LINE_END = re.compile(r"\r\n?|\n")
_TOKEN_LINE = re.compile(r"(?P<name>[^\t]*[^\t\s])\s*#(?P<number>[0-9]+) *\t(?P<caption>.*)")
# Headings that people write instead of `CSV_COLUMNS`.
_LIKELY = {
    "image": "images file filename file_name name img picture photo path bild datei dateiname",
    "caption": "captions text description comment sentence title beschreibung bildunterschrift",
    "split": "set subset partition",
}


@dataclass(frozen=True)
class Record:
    """One entry of a caption file; an image may have several, which add up.

    Attributes:
        image: The image's name as written.
        captions: Its captions, none empty; white space and line breaks are single spaces.
        split: `train`, `dev` or `test`; None if the file names no split.
        place: Place in the file for messages, such as "line 7" or "images[3]".
        blank: Number of blank captions that were dropped.
    """

    image: str
    captions: tuple[str, ...]
    split: str | None
    place: str
    blank: int = 0


def read_captions(path: Path) -> tuple[Record, ...]:
    """Reads the records of a caption file, in order; again only if it has changed.

    Raises:
        DataError: The file cannot be read, does not parse, or names no image.
    """
    try:
        status = path.stat()
        return _read(path, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error


@functools.lru_cache(maxsize=2)
def _read(path: Path, changed: int, size: int) -> tuple[Record, ...]:
    name = path.name.lower()
    suffix = next((suffix for suffix in _READERS if name.endswith(suffix)), None)
    if suffix is None:
        kinds = ", ".join(f"*{suffix}" for suffix in _READERS)
        raise DataError(f"{path}: expected a file named {kinds}.{advice_without_captions([path])}")
    records = tuple(_READERS[suffix](path))
    if not records:
        raise DataError(f"{path} holds no image.")
    return records


def advice_without_captions(paths: Iterable[Path]) -> str:
    """Returns a sentence on what there is instead of a caption file, if it can become one."""
    for path in paths:
        if path.suffix.lower() in _SPREADSHEETS:
            return f" {path.name} is a spreadsheet: save it as CSV (UTF-8)."
        if path.suffix.lower() in _TEXTS:
            return f" If {path.name} is a table of captions, give `--data.captions {path.name}`."
    return ""


def read_text(path: Path) -> str:
    """Reads a UTF-8 file without its byte-order mark; line ends stay as they are.

    Raises:
        DataError: It is not UTF-8; the message names the line.
    """
    content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: not UTF-8 ({error.reason}); save the file as UTF-8."
        ) from error


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the lines of a UTF-8 file that are not blank, with their numbers from 1.

    Raises:
        DataError: It is not UTF-8.
    """
    # Not `str.splitlines`, which also cuts at characters that captions may contain.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            yield number, line.rstrip("\r")


def has_half_character(text: str) -> bool:
    """Returns whether a text has a lone surrogate: JSON's escapes can, but no UTF-8 file."""
    return any("\ud800" <= char <= "\udfff" for char in text)


def _read_csv(path: Path) -> Iterator[Record]:
    text = read_text(path)
    delimiter = _delimiter(text)
    rows = list(_csv_rows(path, text, delimiter))
    line, header = rows[0] if rows else (1, [])
    columns = [name.strip().lower() for name in header]
    known = {"image", "caption"} <= set(columns) <= set(CSV_COLUMNS)
    if not known or len(set(columns)) != len(columns):
        expected = "expected the header image,caption or image,caption,split"
        _fail(path, f"line {line}", f"{expected}, got {header}{_header_advice(columns)}")
    _refuse_swallowed_rows(path, rows[1:], columns, delimiter)
    for line, row in rows[1:]:
        place = f"line {line}"
        if len(row) != len(columns):
            why = f"expected {len(columns)} fields, got {len(row)}"
            advice = "a caption that contains the separator needs quotes around it"
            _fail(path, place, f"{why} ({advice}): {str(row)[:80]}")
        fields = dict(zip(columns, row, strict=True))
        yield _record(path, place, fields["image"], [fields["caption"]], fields.get("split"))


def _header_advice(columns: list[str]) -> str:
    """Columns to rename, by the headings that people write instead; nothing if none is known."""
    likely = {word: name for name, words in _LIKELY.items() for word in words.split()}
    renamed = [f"{column} to {likely[column]}" for column in columns if column in likely]
    return f"; rename {' and '.join(renamed)}" if renamed else ""


def _refuse_swallowed_rows(
    path: Path, rows: list[tuple[int, list[str]]], columns: list[str], delimiter: str
) -> None:
    """Checks that no text between quotation marks holds rows of the table.

    A mark that is not closed takes in all up to the next one, where the table may go on as if
    nothing had happened. A line within a field looks like a row if the cell of its image is an
    image's name; tabs, which captions do not contain, make any line one.

    Raises:
        DataError: The message names the line where the field begins.
    """
    at = columns.index("image")
    known = {row[at].strip() for _, row in rows if len(row) > at} - {""}

    def names_image(cells: list[str], at: int) -> bool:
        name = cells[at].strip().strip('"') if 0 <= at < len(cells) else ""
        return name in known or name.lower().endswith(IMAGE_SUFFIXES)

    for line, row in rows:
        for number, field in enumerate(row):
            first, *others = _LINE_END.split(field) if "\n" in field or "\r" in field else [field]
            for further, other in enumerate(others, start=1):
                cells = other.split(delimiter)
                whole = len(cells) > 1 and names_image(cells, at)
                tabs = delimiter == "\t" and len(cells) >= len(columns)
                # The field's own row may have ended in its first line: its image came after it.
                rest = number < at and names_image(first.split(delimiter), at - number)
                if whole or tabs or rest:
                    why = (
                        f"the quotation mark before {first[:40]!r} is not closed in its row, and "
                        f"line {line + further}, {other[:60]!r}, would be part of the text; close "
                        'it, or write "" for a mark that belongs to a quoted text'
                    )
                    _fail(path, f"line {line}", why)
            line += len(others)


def _csv_rows(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not blank, with the line at which each begins."""
    # newline="": line ends inside quotes belong to the caption.
    stream = io.StringIO(text, newline="")
    reader = csv.reader(stream, delimiter=delimiter, strict=True)
    start = 1
    try:
        for row in reader:
            if any(field.strip() for field in row):
                yield start, row
            start = reader.line_num + 1
    except csv.Error as error:
        _fail(path, f"line {start}", f"not CSV ({error}); look for a quote that is not closed")


def _delimiter(text: str) -> str:
    """The separator that occurs most often in the first line that is not blank."""
    header = text.lstrip().split("\n", 1)[0]
    return max(_DELIMITERS, key=header.count)


def _read_jsonl(path: Path) -> Iterator[Record]:
    for number, line in lines(path):
        place = f"line {number}"
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            _fail(path, place, f"not JSON ({error.msg}, column {error.colno})")
        if isinstance(value, dict) and isinstance(value.get("captions"), str):
            _fail(path, place, f"'captions' has to be a list, got {value['captions'][:80]!r}")
        if not isinstance(value, dict) or not isinstance(value.get("captions"), list):
            _fail(path, place, f'expected {{"image": ..., "captions": [...]}}, got {line[:80]}')
        yield _record(path, place, value.get("image"), value["captions"], value.get("split"))


def _read_json(path: Path) -> Iterator[Record]:
    try:
        content = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        _fail(path, f"line {error.lineno}", f"not JSON ({error.msg}, column {error.colno})")
    if not isinstance(content, dict) or "images" not in content:
        forms = 'expected {"images": [...], "annotations": [...]} (COCO), or the form of Karpathy'
        _fail(path, "the whole file", f"{forms}, got {json.dumps(content)[:80]}")
    images = _value(path, "the whole file", content, "images", list)
    if "annotations" in content:
        return _coco(path, images, _value(path, "the whole file", content, "annotations", list))
    return _karpathy(path, images)


def _coco(path: Path, images: list[Any], annotations: list[Any]) -> Iterator[Record]:
    captions: dict[Any, list[Any]] = {}
    for index, image in enumerate(images):
        identifier = _value(path, f"images[{index}]", image, "id", (int, str))
        if identifier in captions:
            _fail(path, f"images[{index}]", f"a second image with the id {identifier!r}")
        captions[identifier] = []
    for index, annotation in enumerate(annotations):
        place = f"annotations[{index}]"
        identifier = _value(path, place, annotation, "image_id", (int, str))
        if identifier not in captions:
            _fail(path, place, f"no image has the id {identifier!r}")
        captions[identifier].append(_value(path, place, annotation, "caption", str))
    for index, image in enumerate(images):
        name, split = image.get("file_name"), image.get("split")
        yield _record(path, f"images[{index}]", name, captions[image["id"]], split)


def _karpathy(path: Path, images: list[Any]) -> Iterator[Record]:
    for index, image in enumerate(images):
        place = f"images[{index}]"
        name = _value(path, place, image, "filename", str)
        if image.get("filepath"):
            name = f"{_value(path, place, image, 'filepath', str)}/{name}"
        captions = [
            _value(path, f"{place}.sentences[{number}]", sentence, "raw", str)
            for number, sentence in enumerate(_value(path, place, image, "sentences", list))
        ]
        split = image.get("split")
        # By custom, the rest of COCO's validation images belongs to training.
        yield _record(path, place, name, captions, "train" if split == "restval" else split)


def _read_tokens(path: Path) -> Iterator[Record]:
    captions: dict[str, dict[int, str]] = {}
    first: dict[str, str] = {}
    for number, line in lines(path):
        match = _TOKEN_LINE.fullmatch(line)
        if match is None:
            _fail(path, f"line {number}", f"expected NAME.jpg#K<TAB>caption, got {line[:80]!r}")
        name, caption = match["name"].strip(), match["caption"].replace("\t", " ").strip()
        first.setdefault(name, f"line {number}")
        of_image = captions.setdefault(name, {})
        if of_image.setdefault(int(match["number"]), caption) != caption:
            why = f"a second, different caption {name}#{match['number']}"
            _fail(path, f"line {number}", why)
    for name, of_image in captions.items():
        texts = tuple(text for _, text in sorted(of_image.items()) if text)
        yield Record(name, texts, None, first[name], len(of_image) - len(texts))


def _record(path: Path, place: str, image: Any, captions: list[Any], split: Any) -> Record:
    image = _value(path, place, {"image": image}, "image", str).strip()
    if not image:
        _fail(path, place, "the name of the image is empty")
    if has_half_character(image):
        _fail(path, place, f"half a character (a lone surrogate) in the image's name {image!r}")
    texts = []
    for caption in captions:
        text = " ".join(_value(path, place, {"caption": caption}, "caption", str).split())
        if has_half_character(text):
            _fail(path, place, f"half a character (a lone surrogate) in the caption {text!r}")
        if text:
            texts.append(text)
    if split is not None:
        split = _value(path, place, {"split": split}, "split", str).strip().lower()
    try:
        split = canonical_split(split) if split else None
    except ValueError:
        _fail(path, place, f"expected the split train, dev (or val) or test, got {split!r}")
    return Record(image, tuple(texts), split, place, blank=len(captions) - len(texts))


def _value(path: Path, place: str, holder: Any, key: str, kind: type | tuple[type, ...]) -> Any:
    """Reads `holder[key]`, which has to be a mapping and a value of that kind."""
    found = holder.get(key) if isinstance(holder, dict) else None
    if not isinstance(found, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        names = {str: "a text", int: "a number", list: "a list"}
        got = repr(found if isinstance(holder, dict) else holder)[:80]
        _fail(path, place, f"expected {key!r}, {' or '.join(names[k] for k in kinds)}, got {got}")
    return found


def _fail(path: Path, place: str, what: str) -> NoReturn:
    raise DataError(f"{path}, {place}: {what}.")


_READERS = {
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".token": _read_tokens,
    ".token.txt": _read_tokens,
    **dict.fromkeys(_TEXTS, _read_csv),
}
"""Reader of each kind of file, by the end of its name; of two ends that fit, the first."""
