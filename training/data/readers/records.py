"""Records of a caption file, and the rules for the text in them.

A reader is a function from a file to `CaptionFile`. It takes the content of the file unchanged or
refuses it: anything that could be read in two ways is an error that says how to decide.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from sat_tf.images import SUFFIXES
from training.data.examples import SPLIT_ALIASES, SPLITS, DataError, StoredImage

RECIPES = "docs/data.md#convert"
FORMS = (
    "a table with the columns image and caption (CSV, TSV, JSON lines, a JSON list or Parquet), "
    "COCO's or Karpathy's JSON, lines NAME.jpg#K<TAB>caption, or KEY.jpg with KEY.txt"
)
MOST_BYTES = 2**31
"""Size of the largest caption file that is read."""
SPLIT_WORDS = {name: name for name in SPLITS} | SPLIT_ALIASES
SPLIT_WORDS |= {"training": "train", "restval": "train"}

_MISSING = ("", "nan", "none", "null", "na", "n/a", "<na>", "#n/a", "#name?", "#value!", "#ref!")
# A list or an object as JSON or Python writes it, or quoted texts with commas between.
_WRITTEN = re.compile(
    r"""\s*(?:[\[{]|\(['"]|b['"]|\w+\([\[{('"]|(['"]).+\1\s*,\s*\1.+\1\s*$)""", re.S
)
_SERIES = re.compile(r"\bdtype[:=]")
_DOUBTS = (  # pattern, share of the captions from which on it is an error, what is seen, the way
    (
        re.compile(
            r"</?[a-z|][^<>]*>|\[(?:cls|sep|pad|unk)\]|\b(?:start|end)seq\b|\||###| // "
            r"|\\(?:[nrt]|[ux][0-9a-f]{2})|^\W?1[.):] .* \W?2[.):] ",
            re.I,
        ),
        0.2,
        r"have a mark such as <start>, <p>, |, \n or 1. and 2. inside",
        "write the text alone, and several captions of an image as rows of their own",
    ),
    (
        re.compile(r"[ÃÂ][\x80-\xbf‚-›€™œ]|â€|\ufffd"),
        0.05,
        "have letters of a wrong encoding",
        "save the file as UTF-8 once, from the program that wrote it",
    ),
    (re.compile(r"^[\W\d_]*$"), 0.5, "have no letters", "name the captions, not classes or boxes"),
    (
        re.compile(r"^(?:\w+://\S+|\S+\.[a-z]\w{1,4})$", re.I),
        0.5,
        "are names of files or addresses",
        "write the text itself",
    ),
)
_KINDS = ("lang", "language", "locale", "tag", "attribute", "question", "field", "task", "prompt")
_LISTS, _LETTERS = 0.9, 20  # share of lists of words; letters of a word
_SAMPLE = 10_000  # captions, evenly spread, in which doubts are looked for


class OtherFormError(DataError):
    """A file is in none of the forms that are read, or does not say which texts count."""


def other_form(path: Path, found: str) -> OtherFormError:
    """Makes the error that names the content, the forms that are read, and the recipes."""
    return OtherFormError(
        f"{path}: found {found}; expected {FORMS}. For other forms, see {RECIPES}."
    )


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of a caption file; an image may have several, which add up."""

    image: str  # as written
    captions: tuple[str, ...]  # white space and line breaks are single spaces; "" is missing
    place: str  # in the file, such as "line 7" or "images[3]"
    split: Any = None  # as written, if the file names one
    group: str | None = None  # what the image must share a split with, such as a patient
    identifier: str | None = None  # the image's number next to its name
    stored: StoredImage | None = None  # the image itself, if it is inside the file


@dataclass(frozen=True)
class CaptionFile:
    """A caption file that was read, or a folder of pairs with the files that were `used`."""

    path: Path
    records: Sequence[Record]
    notes: tuple[str, ...] = ()
    used: frozenset[Path] = field(default_factory=frozenset)
    unclear: str = ""  # why images without a split cannot be divided before the user decides


def finished(
    path: Path, records: Iterable[Record], notes: Sequence[str] = (), unclear: str = ""
) -> CaptionFile:
    """Checks that a file has records of whole captions; leaves out and counts those missing."""
    every, notes = tuple(records), list(notes)
    if not every:
        raise OtherFormError(f"{path} holds no image.")
    records = [
        replace(one, captions=tuple(filter(None, one.captions))) if "" in one.captions else one
        for one in every
    ]
    lists = [record for record in records if len(record.captions) > 1]
    words = [record for record in lists if all(map(_is_word, record.captions))]
    if words and len(words) >= _LISTS * len(lists) and 2 * len(lists) >= len(records):
        found = f"the words {list(words[0].captions[:3])} where captions are expected"
        way = f"join the words of each caption by spaces, as the recipe in {RECIPES} does"
        fail(path, words[0].place, f"{found}; {way}")
    texts = [(text, record.place) for record in records for text in record.captions]
    texts = texts[:: len(texts) // _SAMPLE + 1]
    for pattern, most, seen, way in _DOUBTS:
        found = [(text, place) for text, place in texts if pattern.search(text)]
        if not found:
            continue
        told = f"{len(found)} of {len(texts)} captions {seen}, such as {found[0][0][:60]!r}"
        if len(found) >= most * len(texts):
            fail(path, found[0][1], f"{told}; {way} ({RECIPES})")
        notes.append(f"{told}.")
    if blank := sum(one.captions.count("") for one in every):
        notes.append(f"{blank} captions are missing (empty, nan, None, null, NA).")
    notes = tuple(f"{path.name}: {note}" for note in notes)
    return CaptionFile(path, records, notes, frozenset([path]), unclear)


def _is_word(text: str) -> bool:  # without spaces, scripts that have none write a caption
    return " " not in text and len(text) <= (_LETTERS if text.isascii() else _LETTERS // 4)


def fail(path: Path, place: str, what: str) -> NoReturn:
    """Raises the error that names the file and the place."""
    raise DataError(f"{path}, {place}: {what}.")


def captions_in(value: Any, path: Path, place: str) -> tuple[str, ...]:
    """Returns the captions in a cell of text or a list of texts; "" for each missing one."""
    if isinstance(value, str) and _is_written(value):
        value = _json(value) or [value]
    texts = []
    for one in value if isinstance(value, list) else [value]:
        text = "" if one is None or one != one else one  # NaN
        if not isinstance(text, str) or _is_written(text):
            way = f"a recipe for lists and objects in cells is in {RECIPES}"
            fail(path, place, f"expected text or a JSON list of texts, got {one!r:.80}; {way}")
        text = " ".join(text.split())
        texts.append("" if text.lower() in _MISSING else _whole(text, path, place))
    return tuple(texts)


def _is_written(text: str) -> bool:
    """Returns whether a text is a list, an object or a series of pandas."""
    return bool(_WRITTEN.match(text)) or ("dtype" in text and bool(_SERIES.search(text)))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _whole(text: str, path: Path, place: str) -> str:
    """Checks for lone surrogates, which JSON's escapes can write, but no UTF-8 file."""
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        fail(path, place, f"half a character (a lone surrogate) in {text!r}")
    return text


def split_in(value: Any, path: Path, place: str) -> str | None:
    """Returns the split that a cell names; None for an empty one."""
    name = "" if value is None or value != value else str(value).strip().lower()
    if name and name not in SPLIT_WORDS:
        expected = f"expected the split {', '.join(SPLITS)} (or val), got {name!r}"
        way = "`--data.held-out 0.1,0.2` divides by names and does not read it"
        fail(path, place, f"{expected}; {way}")
    return SPLIT_WORDS.get(name)


def are_splits(values: Iterable[Any]) -> bool:
    """Returns whether values are names of several splits, train among them."""
    found = {
        SPLIT_WORDS.get(value.strip().lower()) if type(value) is str else 0 for value in values
    }
    return "train" in found and len(found) > 1 and found <= {*SPLITS}


def refuse_kinds(path: Path, column: str, values: Iterable[Any]) -> None:
    """Checks that a column that is not read does not separate captions from other texts.

    Raises:
        DataError: It has a name such as lang or question, and several values.
    """
    if column.strip().lower() not in _KINDS:
        return
    found = [*dict.fromkeys(str(value) for value in values if value not in (None, ""))]
    if len(found) > 1:
        kinds = " and ".join(map(repr, found[:2]))
        way = f"keep those of one, or remove {column} if all are captions"
        fail(path, column, f"the texts are of several kinds, such as {kinds}; {way} ({RECIPES})")


def name_in(value: Any, path: Path, place: str) -> str:
    """Returns the name of an image in a cell."""
    value = str(value) if type(value) is int else value
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
    return _whole(name, path, place)


def is_image_name(value: Any) -> bool:
    """Returns whether a value is a file name with the suffix of an image."""
    return isinstance(value, str) and value.strip().lower().endswith(SUFFIXES)


def shown_names(names: Sequence[str], most: int = 12) -> str:
    """Lists names, the first ones of many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


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
    """Parses JSON; the keys of each object must differ.

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
    except (ValueError, RecursionError) as error:
        hint = " (JSON lines need a name *.jsonl)" if "Extra data" in str(error) else ""
        fail(path, place, f"not JSON ({error}){hint}")
