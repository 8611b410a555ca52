"""Roles of columns and keys: words that name them, and the columns that were chosen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from training.data.readers.caption_files.records import (
    IMAGE_SUFFIXES,
    MARKS,
    Source,
    as_captions,
    image_name,
    is_word_list,
)

# Words that people and tools write, in order of preference.
_WORDS = {
    "image": "image file_name filename image_name img_name image_file file image_path img_path "
    "filepath file_path path images img picture photo bild datei dateiname foto imagen",
    # If nothing else names the image.
    "id": "image_id img_id imgid image_key id key name uid",
    "caption": "caption captions text texts description descriptions comment comments sentence "
    "sentences title alt prompt report findings impression raw beschreibung bildunterschrift "
    "legende legenda descripcion",
    # In the name of a column that tells something about captions.
    "about": "number num no id ids index count length len language lang score url tokens tokenized "
    "path file author time date type image detected source model",
    "split": "split set subset partition set_name data_split",
}
IMAGES, IDS, CAPTIONS, _ABOUT, SPLITS = (words.split() for words in _WORDS.values())
# Words by which those who review captions mark them.
REFUSED = ("reject", "rejected", "ignore", "ignored", "discarded", "invalid", "cancelled")
YES = ("1", "1.0", "true", "yes", "x")
# Marks between captions in one cell; of the others, reports and lists have some inside too.
JOINTS, WEAK_JOINTS = ("||", "|", "###", "<sep>", "[SEP]"), ("\n", ";")
JOINED = 0.2
"""Share of the cells that have such a mark where it divides captions."""
_PHRASE = 3  # words; a text of so many is neither a name nor a heading


@dataclass(frozen=True)
class Chosen:
    """Indices of the columns.

    Attributes:
        pairs: Column of an image's name, and those of its captions; several if rows name several
            images.
        split: Its split; None without.
        group: The group of images that it belongs to; None without.
        joint: Mark between several captions in one cell; None without.
        marks: Columns that mark captions as valid or not, with their names; the latter are left
            out.
        words: Whether a cell is a list of the words of one caption.
        left_out: Reason -> number of captions that it left out.
    """

    pairs: tuple[tuple[int, tuple[int, ...]], ...]
    split: int | None
    group: int | None = None
    joint: str | None = None
    marks: Mapping[int, str] = field(default_factory=dict)
    words: bool = False
    left_out: Counter = field(default_factory=Counter)

    @property
    def image(self) -> int:
        """The first column of images."""
        return self.pairs[0][0]

    @property
    def captions(self) -> tuple[int, ...]:
        """All columns of captions."""
        return tuple(dict.fromkeys(i for _, captions in self.pairs for i in captions))

    def cells(self, of: Callable[[int], Any]) -> list[tuple[Any, list[Any], Any, Any]]:
        """Returns image, captions, split and group of each image of a row.

        Args:
            of: Returns the row's cell in a column. Of several images, blank ones are left out.
        """
        split, group = (None if i is None else of(i) for i in (self.split, self.group))
        refused = next((m for i, name in self.marks.items() if (m := _refusal(name, of(i)))), None)
        found = []
        for image, captions in self.pairs:
            texts = self._texts(map(of, captions))
            if refused is not None and texts:
                self.left_out[f"marked {refused}"] += len(texts)
                texts = []
            found.append((of(image), texts, split, group))
        return [cells for cells in found if cells[0] not in (None, "")] or found[:1]

    def _texts(self, cells: Iterable[Any]) -> list[Any]:
        """Captions of a row's cells; of several columns, blank cells are left out."""
        of_cells = map(as_captions, cells)
        if self.words:
            of_cells = ([texts] if is_word_list(texts) else texts for texts in of_cells)
        found = [text for texts in of_cells for text in texts]
        if self.joint:
            parts = [t.split(self.joint) if isinstance(t, str) else [t] for t in found]
            found = [part for of_text in parts for part in of_text]
        if self.joint or len(self.captions) > 1:
            found = [text for text in found if not isinstance(text, str) or text.strip()]
        return found or [""] * bool(self.joint)


def plain(name: str) -> str:
    """A heading in small letters, its words joined by underscores."""
    return re.sub(r"[^\w]+", "_", str(name).strip().lower()).strip("_")


def is_known(name: str) -> bool:
    """Returns whether a heading names a role."""
    name = plain(name)
    return name in IMAGES or name in IDS or name in SPLITS or is_caption(name)


def is_image_heading(name: str) -> bool:
    """Returns whether a heading names images, not merely their ids."""
    return plain(name) in IMAGES


def is_image_name(value: Any) -> bool:
    """Returns whether a value is the name of an image file, or an encoded image."""
    if isinstance(value, str):
        return image_name(value).lower().endswith(IMAGE_SUFFIXES)
    if isinstance(value, (list, tuple)):
        return bool(value) and all(map(is_image_name, value))
    return isinstance(value, bytes) or (isinstance(value, dict) and "bytes" in value)


def plain_choice(
    source: Source, names: Sequence[str], rows: Sequence[Sequence[Any]]
) -> Chosen | None:
    """Returns the columns of a table with the headings image and caption, and perhaps split.

    None where only their content can tell: columns.choose settles that.
    """
    headings = [plain(name) for name in names]
    if source.columns or not {"image", "caption"} <= {*headings} <= {"image", "caption", "split"}:
        return None
    image, caption = headings.index("image"), headings.index("caption")
    shown, said = ([row[column] for row in rows] for column in (image, caption))
    if len(headings) > len({*headings}) or not all(isinstance(v, str) for v in [*shown, *said]):
        return None
    joined = sum(any(mark in text for mark in (*JOINTS, *WEAK_JOINTS)) for text in said)
    certain = (
        all(is_image_name(name) and not re.search(r"[\[,;|]|://", name) for name in shown)
        and any(said)
        and not any(text.lstrip().startswith(("[", "{", "(")) for text in said)
        and not mostly(is_image_name, said)
        and joined < JOINED * sum(map(bool, map(str.strip, said)))
    )
    split = headings.index("split") if "split" in headings else None
    return Chosen(((image, (caption,)),), split, left_out=source.left_out) if certain else None


def is_caption(name: str) -> bool:
    """Returns whether a heading names captions."""
    first, *others = re.sub(r"_?\d+$", "", plain(name)).split("_")
    words = {*others} if first in IMAGES else {first, *others}  # image_caption, not caption_image
    return not words.isdisjoint(CAPTIONS) and words.isdisjoint(_ABOUT)


def _refusal(name: str, value: Any) -> str | None:
    """The mark in a cell of a column of marks, if it says that the caption is not valid."""
    mark = str(value).strip().lower()
    if name in MARKS:
        return name if mark in YES else None
    return f"{mark} in {name!r}" if mark in REFUSED else None


def is_phrase(value: Any) -> bool:
    """Returns whether a value is a text of several words, or of letters without spaces."""
    if isinstance(value, dict):  # Label Studio's of several texts
        return bool(texts := as_captions(value)) and texts != [value] and is_phrase(texts)
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(item, dict) or is_phrase(item) for item in value)
    if not isinstance(value, str) or is_image_name(value):
        return False
    if 2 * sum(map(str.isdigit, value)) > len(value):  # a date
        return False
    return len(value.split()) >= _PHRASE or (not value.isascii() and len(value) >= 2 * _PHRASE)


def mostly(test: Callable[[Any], bool], values: Sequence[Any]) -> bool:
    """Returns whether nine of ten values, or more, pass a test; False of none."""
    return bool(values) and sum(map(test, values)) >= 0.9 * len(values)
