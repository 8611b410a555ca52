"""Records of a caption file, and the rules for the text in them.

A reader is a function from a file to `CaptionFile`. It takes what is in the file as it stands or
refuses it: anything that could be read in two ways is an error that says how to decide.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from sat_tf.images import SUFFIXES
from training.data.examples import SPLITS, DataError, StoredImage, canonical_split

RECIPES = "docs/data.md#convert"
FORMS = (
    "a table with the columns image and caption (CSV, TSV, JSON lines, a JSON list or Parquet), "
    "COCO's or Karpathy's JSON, lines NAME.jpg#K<TAB>caption, or KEY.jpg with KEY.txt"
)
MOST_BYTES = 2**31
"""Size of the largest caption file that is read."""

_MISSING = ("", "nan", "none", "null", "na", "n/a", "<na>")
_WRITTEN = ("[", "{", "array(", "('", '("')  # a list or an object, written as text
_FRAME = re.compile(
    r"^(?:<(?:s|sos|bos|start|\|startoftext\|)>|startseq\b|\[CLS\])"
    r"|(?:<(?:/s|eos|end|\|endoftext\|)>|\bendseq)\W*$",
    re.IGNORECASE,
)
_JOINTS = ("|", "###", "<sep>", "[SEP]", "<br>")  # between captions in one cell
_JOINED, _LISTS = 0.2, 0.9  # shares of the records
_LETTERS = 20  # of a word; a longer entry without spaces is a caption in another script


class OtherFormError(DataError):
    """A file is in none of the forms that are read, or does not tell which of its texts count."""


def other_form(path: Path, found: str) -> OtherFormError:
    """Makes the error that says what was found, what is read, and where the recipes are."""
    return OtherFormError(
        f"{path}: found {found}; expected {FORMS}. For other forms, see {RECIPES}."
    )


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of a caption file; an image may have several, which add up."""

    image: str  # as written
    captions: tuple[str, ...]  # none empty; white space and line breaks are single spaces
    place: str  # in the file, such as "line 7" or "images[3]"
    split: str | None = None  # of `SPLITS`, if the file names one
    group: str | None = None  # what the image must share a split with, such as a patient
    blank: int = 0  # missing captions: empty cells, nan, None, null and NA
    identifier: str | None = None  # the image's number next to its name
    stored: StoredImage | None = None  # the image itself, if it is inside the file


@dataclass(frozen=True)
class CaptionFile:
    """A caption file that was read, or a folder of pairs with the files that were `used`."""

    path: Path
    records: Sequence[Record]
    notes: tuple[str, ...] = ()
    used: frozenset[Path] = field(default_factory=frozenset)


def finished(path: Path, records: Iterable[Record], notes: Sequence[str] = ()) -> CaptionFile:
    """Checks that a file has records, whole captions, and one of them in each cell."""
    records = tuple(records)
    if not records:
        raise OtherFormError(f"{path} holds no image.")
    lists = [record for record in records if len(record.captions) > 1]
    split_up = [record for record in lists if all(map(_is_word, record.captions))]
    if split_up and len(split_up) >= _LISTS * len(lists) and 2 * len(lists) >= len(records):
        found = f"the words {list(split_up[0].captions[:3])} where captions are expected"
        way = f"join the words of each caption by spaces, as the recipe in {RECIPES} does"
        fail(path, split_up[0].place, f"{found}; {way}")
    texts = [text for record in records for text in record.captions]
    for mark in _JOINTS:
        joined = sum(mark in text for text in texts)
        if joined and joined >= _JOINED * len(texts):
            inside = f"{joined} of {len(texts)} captions have {mark!r} inside"
            way = f"write several captions of an image as rows of their own ({RECIPES})"
            one = next(text for text in texts if mark in text)[:60]
            raise DataError(f"{path}: {inside}, such as {one!r}; {way}.")
    if blank := sum(record.blank for record in records):
        notes = [*notes, f"{path.name}: {blank} captions are missing (empty, nan, None, null, NA)."]
    return CaptionFile(path, records, tuple(notes), frozenset([path]))


def _is_word(text: str) -> bool:
    return " " not in text and len(text) <= (_LETTERS if text.isascii() else _LETTERS // 4)


def fail(path: Path, place: str, what: str) -> NoReturn:
    """Raises the error that names the file and the place."""
    raise DataError(f"{path}, {place}: {what}.")


def captions_in(value: Any, path: Path, place: str) -> tuple[tuple[str, ...], int]:
    """Returns the captions in a cell of text or a list of texts, and the number of missing ones."""
    if isinstance(value, str) and value.lstrip().startswith(_WRITTEN):
        written = value.strip()[:60]
        try:
            value = json.loads(value)
        except ValueError:
            value = None
        if not isinstance(value, list) or not all(one is None or type(one) is str for one in value):
            way = f"a recipe for lists in cells is in {RECIPES}"
            fail(path, place, f"expected text or a JSON list of texts, got {written!r}; {way}")
    values = value if isinstance(value, list) else [value]
    texts, missing = [], 0
    for one in values:
        if one is None or one != one:  # NaN
            missing += 1
            continue
        if not isinstance(one, str):
            way = f"a recipe for values in lists and objects is in {RECIPES}"
            fail(path, place, f"expected a caption or a list of captions, got {one!r:.80}; {way}")
        text = " ".join(one.split())
        if text.lower() in _MISSING:
            missing += 1
            continue
        if _FRAME.search(text):
            way = "remove them, as training adds its own"
            fail(path, place, f"marks of start or end around the caption {text[:60]!r}; {way}")
        if has_half_character(text):
            fail(path, place, f"half a character (a lone surrogate) in the caption {text!r}")
        texts.append(text)
    return tuple(texts), missing


def split_in(value: Any, path: Path, place: str) -> str | None:
    """Returns the split that a cell names; None for an empty one."""
    name = "" if value is None or value != value else str(value).strip().lower()
    if not name:
        return None
    try:
        return canonical_split("train" if name == "restval" else name)
    except ValueError:
        expected = f"expected the split {', '.join(SPLITS)} (or val), got {name!r}"
        way = "`--data.held-out 0.1,0.2` divides by names and does not read it"
        fail(path, place, f"{expected}; {way}")


def name_in(value: Any, path: Path, place: str) -> str:
    """Returns the name of an image in a cell."""
    if type(value) is int:
        value = str(value)
    if value is None or value != value or (isinstance(value, str) and not value.strip()):
        merged = f"if cells were merged, fill them down ({RECIPES})"
        fail(path, place, f"the name of the image is empty; {merged}, else remove the row")
    if not isinstance(value, str):
        way = f"a recipe is in {RECIPES}"
        fail(path, place, f"expected the name of an image, got {value!r:.80}; {way}")
    name = value.strip()
    if len(name) > 1000 or name.startswith("data:"):
        way = "write the image to a file, and its name here"
        fail(path, place, f"{name[:40]!r}... is no name of an image; {way}")
    if has_half_character(name):
        fail(path, place, f"half a character (a lone surrogate) in the image's name {name!r}")
    return name


def has_half_character(text: str) -> bool:
    """Returns whether a text has a lone surrogate: JSON's escapes can, but no UTF-8 file."""
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def is_image_name(value: Any) -> bool:
    """Returns whether a value is a file name with the suffix of an image."""
    return isinstance(value, str) and value.strip().lower().endswith(SUFFIXES)


def read_text(path: Path) -> str:
    """Reads a UTF-8 file, or UTF-16 with its mark; line ends stay as they are.

    Raises:
        DataError: It cannot be read, is too large, or is not UTF-8; the message names the line.
    """
    try:
        if not path.is_file():
            raise DataError(f"{path} is not a file.")
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path} has more than {MOST_BYTES:,} bytes: divide it into several.")
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        return decoded(content)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        way = (
            f"save it as UTF-8, for example by `iconv -f windows-1252 -t utf-8 {path.name} > "
            f"new-{path.name}`; other encodings are windows-1251 (Cyrillic), gb18030 (Chinese), "
            "shift_jis (Japanese) and cp949 (Korean)"
        )
        raise DataError(f"{path}, line {line}: not UTF-8 ({error.reason}); {way}.") from error


def decoded(content: bytes) -> str:
    """Decodes UTF-8, or UTF-16 with its mark, without the mark; raises UnicodeDecodeError."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):  # Excel's "Unicode text"
        return content.decode("utf-16")
    return content.removeprefix(b"\xef\xbb\xbf").decode("utf-8")


def lines(path: Path) -> list[tuple[int, str]]:
    """Returns the lines of a text file that are not blank, with their numbers from 1."""
    text = read_text(path)
    # Not `str.splitlines`, which also cuts at characters that captions may contain.
    parts = text.split("\n" if "\n" in text else "\r")
    return [(n, line.rstrip("\r")) for n, line in enumerate(parts, start=1) if line.strip()]


def parse_json(text: str, path: Path, place: str = "the whole file") -> Any:
    """Parses JSON in which the keys of each object differ.

    Raises:
        DataError: It is not JSON, or a key occurs twice in an object; the message names it.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            key = Counter(key for key, _ in pairs).most_common(1)[0][0]
            way = "one of its values would be lost; write a list of records instead"
            fail(path, place, f"the key {key!r} occurs twice in one object: {way} ({RECIPES})")
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except DataError:
        raise
    except ValueError as error:
        lines = " (JSON lines need a name *.jsonl)" if "Extra data" in str(error) else ""
        fail(path, place, f"not JSON ({error}){lines}")
    except RecursionError:
        fail(path, place, "not JSON (nested too deeply)")
