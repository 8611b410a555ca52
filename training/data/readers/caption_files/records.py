"""Records that caption files are read into, and what every reader shares."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn
from urllib.parse import parse_qs, unquote

from sat_tf.images import SUFFIXES as IMAGE_SUFFIXES
from sat_tf.text.detokenize import UNSPACED
from training.data.examples import DataError, StoredImage, canonical_split
from training.data.readers.image_folder import ImageFolder

MARKS = ("is_rejected", "is_precanned", "was_cancelled", "foil")
"""Keys by which VizWiz, FOIL and others mark a caption as invalid: a true one leaves it out."""

# Keys that hold a caption's text in a list of objects.
_TEXT_KEYS = ("raw", "caption", "text", "sentence", "value")
_ANSWERING = ("gpt", "assistant", "model")
# By custom, the rest of COCO's validation images belongs to training.
_SPLIT_WORDS = {"restval": "train", "training": "train", "validate": "val", "testing": "test"}
_NAMELESS = (
    "the name of the image is empty; write it (a cell of a spreadsheet that was merged has the "
    "name above), or remove the entry"
)
_NULL = r"\N"  # as MySQL writes no text
_LONG = 1000  # letters that no path has
_KINDS = {str: "a text", int: "a number", list: "a list"}
# Label Studio's names: /data/upload/7/0a1b2c3d-photo.jpg, /data/local-files/?d=folder/photo.jpg
_UPLOAD = re.compile(r"/?data/(?:upload|local-files)/(?:.*/)?(?P<name>[^/]+)")
# File:a.jpg (Wikimedia), a.jpg#0 (Flickr8k), a.jpg?v=2, a.jpg (https://...) (Airtable)
_AFTER = "|".join(f"(?<={re.escape(suffix)})" for suffix in IMAGE_SUFFIXES)
_AROUND = re.compile(rf"^File:|(?:{_AFTER})(?:#\d+|\?[^/]*| \(https?://[^()]*\))$", re.IGNORECASE)
_BETWEEN = re.compile(r"\s*[,;|]\s*")
_SPECIAL = re.compile("[:#?(]|data/")
_NAMED = re.compile(rf"[^/?&=]+(?:{'|'.join(map(re.escape, IMAGE_SUFFIXES))})(?!\w)", re.IGNORECASE)
# A text as Python writes it, and the white space before the next one.
_LITERAL = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(\s+(?=['"]))?""", re.DOTALL)
# Marks that tutorials write around captions.
_FRAME = re.compile(
    r"^(?:(?:<(?:s|sos|bos|start)>|\[start\])\s*|startseq\s+)"
    r"|(?:\s*(?:</s>|<(?:eos|end)>|\[end\])|\s+endseq)(?:\s*(?:<pad>|\[pad\]))*$"
    r"|(?:\s*(?:<pad>|\[pad\]))+$",
    re.IGNORECASE,
)
_UNSPACED = re.compile(f"[{UNSPACED}]")
_MOST_LETTERS = 3  # of a word in letters without spaces; more may be a caption
# What is said of counted captions, records and images, in this order.
_COUNTED = {
    "words": "{} lists of words are joined to a caption each",
    "in_order": "images and captions of {} records are paired in their order",
    "sharing": "{} records name several images, which share their captions",
    "undivided": "its splits are not read, as `--data.held-out` is given",
    "without": "{} records with an empty list of images are left out",
    "joined": "{} captions have commas without quotation marks around the text",
    "framed": "{} captions had marks of their start or end, such as <start> or endseq, which are "
    "left out: training has its own",
    "web": "{} images are named by web addresses: files named like their last part are used, so "
    "download the images into the folder first",
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
        identifier: The image's number or other id in the file, if it has one beside its name.
        group: What its images belong to, such as a patient; None without.
        stored: The image itself, if it is inside the file.
    """

    image: str
    captions: tuple[str, ...]
    split: str | None
    place: str
    blank: int = 0
    identifier: str | None = None
    group: str | None = None
    stored: StoredImage | None = None


@dataclass(frozen=True)
class CaptionFile:
    """A caption file, read.

    Attributes:
        path: The file.
        records: Its records, in order.
        notes: Sentences on what was not taken as it stands: columns that were chosen by their
            content or not read, captions left out.
        used: The file, and others that were read with it.
    """

    path: Path
    records: tuple[Record, ...]
    notes: tuple[str, ...] = ()
    used: frozenset[Path] = frozenset()


@dataclass
class Source:
    """A caption file that is being read: the door for its values, and notes on it.

    Attributes:
        path: The file.
        images: The images, for a form that only their names can settle.
        columns: Role (see `columns.ROLES`) -> columns or keys that the user gave for it.
        divided: Whether names divide the images, so that splits in the file are not read.
        notes: See `CaptionFile`.
        used: Files that are read with this one.
        left_out: Reason -> number of captions that it left out.
        counts: Key of `_COUNTED` -> number.
        parallel: Whether records with several images have as many captions, one for each.
    """

    path: Path
    images: ImageFolder
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    divided: bool = False
    notes: list[str] = field(default_factory=list)
    used: set[Path] = field(default_factory=set)
    left_out: Counter = field(default_factory=Counter)
    counts: Counter = field(default_factory=Counter)
    parallel: bool = False

    def fail(self, place: str, what: str) -> NoReturn:
        """Raises the error of the user's file that names the file and the place."""
        raise DataError(f"{self.path}, {place}: {what}.")

    def note(self, what: str) -> None:
        """Adds a note on the file."""
        self.notes.append(f"{self.path.name}: {what}.")

    def trial(self) -> Source:
        """The same file without notes, to find out whether it can be read in some form."""
        return dataclasses.replace(self, notes=[], used=set(), left_out=Counter(), counts=Counter())

    def value(self, place: str, holder: Any, key: str, kind: type | tuple[type, ...]) -> Any:
        """Reads `holder[key]`, which has to be a mapping and a value of that kind."""
        found = holder.get(key) if isinstance(holder, dict) else None
        if not isinstance(found, kind):
            kinds = kind if isinstance(kind, tuple) else (kind,)
            got = repr(found if isinstance(holder, dict) else holder)[:80]
            expected = f"{key!r}, {' or '.join(_KINDS[kind] for kind in kinds)}"
            keys = holder if found is None and isinstance(holder, dict) else {}
            has = f"; it has {', '.join(map(repr, keys))[:120]}" if keys else ""
            self.fail(place, f"expected {expected}, got {got}{has}")
        return found

    def marked(self, holder: Mapping[str, Any]) -> bool:
        """Returns whether a caption is marked as invalid, and counts it."""
        mark = next((mark for mark in MARKS if holder.get(mark) is True), None)
        if mark is not None:
            self.left_out[f"marked {mark}"] += 1
        return mark is not None

    def record(
        self,
        place: str,
        image: Any,
        captions: list[Any],
        split: Any = None,
        group: Any = None,
        **details: Any,
    ) -> Record:
        """Makes a record of values as they stand in the file."""
        image = self._name(place, image)
        texts = []
        for caption in captions:
            if not isinstance(caption, str):
                caption = self._text(place, caption)
            text, marks = _FRAME.subn("", " ".join(caption.split()))
            self.counts["framed"] += marks > 0
            if has_half_character(text):
                self.fail(place, f"half a character (a lone surrogate) in the caption {text!r}")
            if text and text != _NULL:
                texts.append(text)
        if split is not None:
            if not isinstance(split, (str, int, float)):
                self.value(place, {"split": split}, "split", str)
            split = self.split(place, str(split))
        blank = len(captions) - len(texts)
        group = str(group or "").strip() or None
        return Record(image, tuple(texts), split, place, blank, group=group, **details)

    def records(self, place: str, image: Any, *values: Any) -> Iterator[Record]:
        """Makes the records of all images that are named; they share captions, or have one each."""
        names, (captions, *others) = image_names(image), values
        self.counts["without"] += not names
        if self.parallel and len(names) == len(captions) > 1:
            self.counts["in_order"] += 1
            each = [[caption] for caption in captions]
        else:
            self.counts["sharing"] += len(names) > 1
            each = [captions] * len(names)
        pairs = zip(names, each, strict=True)
        return (self.record(place, name, texts, *others) for name, texts in pairs)

    def split(self, place: str, name: str) -> str | None:
        """The split of that name, None if it is blank."""
        name = name.strip().lower()
        if self.divided:
            self.counts["undivided"] += bool(name)
            return None
        words = {known_split(word) for word in re.findall("[a-z]+", name)} - {None}
        split = known_split(name) or (words.pop() if len(words) == 1 else None)  # val2017, qual_dev
        if name and split is None:
            way = "; `--data.held-out 0.1,0.2` divides by names and does not read it"
            self.fail(place, f"expected the split train, dev (or val) or test, got {name!r}{way}")
        return split

    def finished(self) -> tuple[str, ...]:
        """The notes, with those on what was counted."""
        for reason, count in self.left_out.items():
            if count:
                self.note(f"{count} captions {reason} are left out")
        for kind, sentence in _COUNTED.items():
            if count := self.counts[kind]:
                self.note(sentence.format(count))
        return tuple(dict.fromkeys(self.notes))

    def _text(self, place: str, caption: Any) -> str:
        if isinstance(caption, list) and caption and all(isinstance(w, str) for w in caption):
            self.counts["words"] += 1
            return join_words(caption)
        if isinstance(caption, dict):
            texts = [caption[key] for key in _TEXT_KEYS if isinstance(caption.get(key), str)]
            if texts:
                return texts[0]
            expected = f"a caption, or an object with one under {', '.join(_TEXT_KEYS)}"
            self.fail(place, f"expected {expected}, got {caption!r}"[:240])
        return self.value(place, {"caption": caption}, "caption", str)

    def _name(self, place: str, image: Any) -> str:
        if not isinstance(image, str):
            number = isinstance(image, int) and not isinstance(image, bool)
            image = str(image) if number else self.value(place, {"image": image}, "image", str)
        image = image.strip()
        if not image:
            self.fail(place, _NAMELESS)
        if len(image) > _LONG or image.startswith("data:"):
            what = "write the image to a file, and its name here; this is not a name (an image in "
            self.fail(place, f"{what}base64, or a text?), {image[:40]!r} ...")
        if has_half_character(image):
            self.fail(place, f"half a character (a lone surrogate) in the image's name {image!r}")
        self.counts["web"] += "://" in image
        image = image_name(image)
        return image


def image_name(written: str) -> str:
    """The name or path of an image in what is written: an address, or marks around the name."""
    text = written.strip().strip('"')
    if len(text) > _LONG or not _SPECIAL.search(text):
        return text
    text = _AROUND.sub("", text)
    if "://" in text:
        _, _, path = text.partition("://")  # urlsplit refuses some hosts
        path, _, query = path.partition("#")[0].partition("?")
        inner = parse_qs(query).get("d", [path])[0]
        last = unquote(PurePosixPath(inner).name)
        if not last.lower().endswith(IMAGE_SUFFIXES):  # image.php?f=a.jpg
            last = (_NAMED.findall(unquote(unquote(text))) or [last])[-1]
        return last or text
    upload = _UPLOAD.fullmatch(text)
    return unquote(upload["name"].removeprefix("?d=")) if upload else text


def image_names(written: Any) -> list[Any]:
    """The names in a cell: one, a list, or several with a comma, semicolon or bar between."""
    if isinstance(written, str) and written.lstrip().startswith("["):
        written = written_list(written) or written
    if not isinstance(written, str) or not _BETWEEN.search(written):
        return written if isinstance(written, list) else [written]
    parts = [part for part in _BETWEEN.split(written) if part]
    images = all(image_name(part).lower().endswith(IMAGE_SUFFIXES) for part in parts)
    return parts if len(parts) > 1 and images else [written]


def known_split(name: str) -> str | None:
    """The split that a word in small letters means, None if it means none."""
    try:
        return canonical_split(_SPLIT_WORDS.get(name, name))
    except ValueError:
        return None


def as_captions(value: Any) -> list[Any]:
    """The captions in a cell: a list, a list written as text, or one caption; None is none."""
    if value is None or value != value:  # NaN is pandas' for none
        return []
    if isinstance(value, str) and value.lstrip().startswith(("[", "{", "(")):
        parsed = written_list(value)
        value = value if parsed is None else parsed
    if value == {}:
        return []
    if isinstance(value, dict) and all(str(key).isdecimal() for key in value):
        value = list(value.values())
    if isinstance(value, dict):  # such as Label Studio's {"text": [...]} if there are several
        value = next((value[key] for key in _TEXT_KEYS if key in value), value)
    if not isinstance(value, (list, tuple)):
        return [value]
    turns = [turn for turn in value if isinstance(turn, dict)]
    speakers = [turn.get("from", turn.get("role")) for turn in turns]
    if any(speakers):  # a conversation (LLaVA): its first answer
        answer = next((t for t, who in zip(turns, speakers, strict=True) if who in _ANSWERING), {})
        said = next((answer[key] for key in ("value", "content", "parts") if key in answer), None)
        texts = said if isinstance(said, list) else [said]
        return [text for text in texts if not isinstance(text, dict) or text.get("text")] or [None]
    if turns and all("assistant" in turn for turn in turns):  # {"user": ..., "assistant": ...}
        return [turns[0]["assistant"]]
    return list(value)


def are_words(values: Iterable[Any]) -> bool:
    """Returns whether the lists in cells are of the words of one caption: hardly one is longer.

    Args:
        values: Cells, each with a list, a list written as text, or another value.
    """
    texts = [as_captions(value) for value in values]
    lists = [of for of in texts if len(of) > 1]
    whole = sum(map(is_word_list, lists))
    return bool(lists) and whole >= 0.9 * len(lists) and 2 * len(lists) >= len(texts)


def is_word_list(texts: Sequence[Any]) -> bool:
    """Returns whether a list is of several single words."""

    def is_word(text: Any) -> bool:
        if not isinstance(text, str) or " " in text.strip():
            return False
        return len(text) <= _MOST_LETTERS or not _UNSPACED.search(text)

    return len(texts) > 1 and all(map(is_word, texts))


def join_words(words: Sequence[str]) -> str:
    """Joins the words of a caption, with spaces but in scripts that have none."""
    written = [word.strip() for word in words]
    most = 2 * sum(bool(_UNSPACED.search(word)) for word in written) > len(written)
    return ("" if most else " ").join(written)


def written_list(text: str) -> list[Any] | tuple[Any, ...] | dict[str, Any] | None:
    """The list or object that a cell holds as JSON or as Python writes it; None if it is text."""
    # NumPy writes no commas, and Python would join the texts.
    commas = _LITERAL.sub(lambda found: found[1] + (", " if found[2] else ""), text)
    for parse, written in ((json.loads, text), (ast.literal_eval, commas)):
        try:
            found = parse(written)
        except (ValueError, SyntaxError, TypeError):
            continue
        items = found if isinstance(found, (list, tuple)) else [found]
        if all(isinstance(item, (str, dict)) for item in items):
            return found
    return None


def has_half_character(text: str) -> bool:
    """Returns whether a text has a lone surrogate: JSON's escapes can, but no UTF-8 file."""
    # Texts of one byte per character are the most, and cannot.
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def name_of_several(records: Iterable[Record]) -> str | None:
    """Returns the first name that stored images of different content share, if any."""
    first: dict[str, StoredImage] = {}
    for record in records:
        if record.stored is not None:
            other = first.setdefault(record.image, record.stored)
            if other is not record.stored and other.read_bytes() != record.stored.read_bytes():
                return record.image
    return None
