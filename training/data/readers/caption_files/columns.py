"""Finds the columns (or keys) of image, captions and split where headings alone do not tell.

A column has its role by its name, else by its content; where two could have it, the user is asked.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, NoReturn
from urllib.parse import unquote

from training.data.readers.caption_files.records import (
    MARKS,
    Source,
    are_words,
    image_name,
    image_names,
    known_split,
)
from training.data.readers.caption_files.roles import (
    CAPTIONS,
    IDS,
    IMAGES,
    JOINED,
    JOINTS,
    REFUSED,
    SPLITS,
    WEAK_JOINTS,
    YES,
    Chosen,
    is_caption,
    is_image_name,
    is_phrase,
    mostly,
    plain,
)

_ROLE_WORDS = {word for name in (*IMAGES, *CAPTIONS) for word in name.split("_")}
_ROLE_WORDS |= {"cap", "caps", "desc", "txt", "pic"}
# About an image, and no captions; or none beside a title.
_QUESTIONS = ("question", "query", "answer", "instruction", "system")
_LISTS = ("keyword", "tag", "license", "rights", "ingredient")
_LISTS += ("author", "artist", "photographer", "creator", "credit")
# Beside REFUSED and YES, in columns of reviews.
_REVIEWED = ("accept", "accepted", "approve", "approved", "submitted", "valid", "completed")
_NO = ("0", "0.0", "false", "no")
_WEAKLY_JOINED = 0.5  # share of the cells


def choose(
    source: Source, place: str, names: Sequence[str], rows: Sequence[Sequence[Any]]
) -> Chosen:
    """Chooses the columns, and notes those that are not plain `image`, `caption` and `split`.

    Args:
        source: The file.
        place: Where the names stand in it.
        names: The columns' names as written.
        rows: The first rows, for a look at the content.

    Raises:
        DataError: No column, or more than one, could have a role.
    """
    return _Columns(source, place, names, rows).choose()


class _Columns:
    """The columns of a table, by name and content."""

    def __init__(
        self, source: Source, place: str, names: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        self.source, self.place, self.names = source, place, list(names)
        self.rows = rows
        self.plain = [plain(name) for name in names]
        columns = zip(*rows, strict=False) if rows else ([],) * len(names)
        self.values = [[v for v in column if v not in (None, "", [])] for column in columns]

    def choose(self) -> Chosen:
        given = {role: self._given(role) for role in self.source.columns}
        pairs = self._pairs(given.get("image"), given.get("caption"))
        images, captions = [image for image, _ in pairs], [i for _, of in pairs for i in of]
        taken = {*images, *captions}
        split = given["split"][0] if "split" in given else self._split(taken)
        group = given.get("group") or [i for i in self._called("group") if i not in captions]
        joint = self._joint(captions[0]) if len({*captions}) == 1 else None
        group = group[0] if group else None
        marks = {
            i: self.plain[i]
            for i, values in enumerate(self.values)
            if i not in {*taken, split, group} and self._marks(i, values)
        }
        words = are_words(v for i in {*captions} for v in self.values[i])
        chosen = Chosen(pairs, split, group, joint, marks, words, self.source.left_out)
        self.source.parallel = self._is_parallel(chosen)
        self._note(chosen)
        return chosen

    def _is_parallel(self, chosen: Chosen) -> bool:
        """Tests if each row with several images in its cell has as many captions."""
        quiet = replace(chosen, left_out=Counter())
        cells = (cells for row in self.rows for cells in quiet.cells(row.__getitem__))
        counts = [(len(image_names(image)), len(texts)) for image, texts, *_ in cells]
        several = [(images, texts) for images, texts in counts if images > 1]
        return bool(several) and all(images == texts for images, texts in several)

    def _pairs(
        self, given: list[int] | None, captions: list[int] | None
    ) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """The columns of images, each with those of its captions.

        Where both are told apart by the same numbers or words, image_0 has caption_0 alone.
        """
        told = captions or [i for i, v in enumerate(self.values) if v and is_caption(self.plain[i])]
        by_key: dict[str, list[int]] = {}
        for i in told:
            by_key.setdefault(_without_role(self.plain[i]), []).append(i)
        several = len(by_key) > 1 and (given is None or len(given) > 1 or captions is None)
        like = [i for i in range(len(self.names)) if self._is_like_image(i)] if several else []
        numbered = {
            key: i for i in given or like if (key := _without_role(self.plain[i])) in by_key
        }
        beside = {i for i in like if _without_role(self.plain[i]) in by_key}
        if len(numbered) > 1 and numbered.keys() != by_key.keys():
            self._ask("image", [*numbered.values()])
        if len(numbered) > 1 or (
            len(numbered) == 1 and given and captions is None and beside - {*given}
        ):
            return tuple((i, tuple(by_key[key])) for key, i in numbered.items())
        if given and captions and len(given) == len(captions) > 1:
            self._fail(
                "which caption goes with which image, their names do not tell: take one image with "
                "its captions, or call the columns image_1, caption_1, image_2, caption_2"
            )
        images = given or [self._image()]
        shared = tuple(captions or self._captions({*images}))
        return tuple((image, shared) for image in images)

    def _is_like_image(self, column: int) -> bool:
        """Tests if a column may name images, by its heading and content."""
        named = not {*self.plain[column].split("_")}.isdisjoint(IMAGES) or re.match(
            "im(age|g)", self.plain[column]
        )
        values = self.values[column]
        return mostly(is_image_name, values) or bool(named and mostly(self._is_stem, values))

    def _given(self, role: str) -> list[int]:
        found = []
        for name in self.source.columns[role]:
            if name in self.names:
                found.append(self.names.index(name))
            elif plain(name) in self.plain:
                found.append(self.plain.index(plain(name)))
            elif name.isdecimal() and 0 < int(name) <= len(self.names):
                found.append(int(name) - 1)
            else:
                self._fail(f"`--data.columns {role}={name}`: there is no such column")
        return found

    def _image(self) -> int:
        files = [i for i, values in enumerate(self.values) if mostly(is_image_name, values)]
        named = [i for name in IMAGES for i in self._called(name)]
        chosen = [i for i in named if i in files][:1] or named[:1]
        if chosen and self.plain.count(self.plain[chosen[0]]) > 1:
            self._fail(f"two columns are called {self.names[chosen[0]]!r}")
        if not chosen and len(files) > 1:  # no web addresses, and names that are there
            files = [i for i in files if not mostly(_is_address, self.values[i])] or files
            files = [i for i in files if mostly(self._is_here, self.values[i])] or files
        if not chosen and len(files) > 1:
            self._ask("image", files)
        ids = [i for name in IDS for i in self._called(name)]
        chosen = chosen or files or ids[:1]
        doubtful = chosen == ids[:1] or mostly(_is_address, self.values[chosen[0]])
        if doubtful and not any(self._is_here(v) for i in chosen for v in self.values[i]):
            here = [i for i, v in enumerate(self.values) if mostly(self._is_stem, v)]
            here = [i for i in here if self._is_id(i)]
            here = [i for i in here if self.values.index(self.values[i]) == i]
            if len(here) > 1:
                self._ask("image", here)
            chosen = here or chosen
        chosen = chosen or [i for i, v in enumerate(self.values) if mostly(_is_address, v)]
        if not chosen:
            why = "no column names the image; write the image's name into each row, or name its "
            self._fail(f"{why}column with `--data.columns image=COLUMN`")
        return chosen[0]

    def _is_here(self, value: Any) -> bool:
        """Tests if a cell may name an image of the folder."""
        if not isinstance(value, str):
            return not isinstance(value, int) or self._is_stem(value)
        if os.path.isfile(os.path.join(self.source.images.root, value)):
            return True  # most often, and without listing the folder
        name = PurePosixPath(image_name(value).replace("\\", "/")).stem.lower()
        return bool({name, name[9:], unquote(name)} & self.source.images.small_stems)

    def _is_id(self, column: int) -> bool:
        """Tests if a column holds no mere numbers, unless it is called the id of something."""
        called = self.plain[column].endswith(("id", "key"))
        return called or not all(str(value).isdecimal() for value in self.values[column])

    def _is_stem(self, value: Any) -> bool:
        return isinstance(value, (str, int)) and str(value) in self.source.images.stems

    def _captions(self, images: Collection[int]) -> list[int]:
        rest = [i for i, values in enumerate(self.values) if i not in images and values]
        rest = [i for i in rest if not mostly(_names_image, self.values[i])]
        texts = [i for i in rest if mostly(is_phrase, self.values[i])]
        texts = [i for i in texts if self.plain[i].rstrip("s") not in _QUESTIONS]
        texts = [i for i in texts if not self.plain[i].startswith("region_")]  # VIA's, of boxes
        found = [i for i, n in enumerate(self.plain) if i not in images and is_caption(n)]
        if texts and not set(found) & set(rest):  # nothing is written in them
            found = []
        filled = [i for i in found if i in rest and all(map(_is_text, self.values[i][:5]))]
        filled = [i for i in filled if i in texts or self._has_phrases(i)] or filled
        # The same for every image is what a service told its workers.
        filled = [i for i in filled if len(set(map(str, self.values[i]))) > 1] or filled
        stems = [re.sub(r"_?\d+$", "", plain) for plain in self.plain]
        for several in (found, filled):
            if len({stems[i] for i in several}) == 1 < len(several):  # raw, raw_1, raw_2
                return [i for i in found if stems[i] == stems[several[0]]]
        if len(filled) == 1 and stems[filled[0]] == "title":
            own = self._length(filled[0])
            others = [
                i for i in texts if i not in found and self.plain[i].rstrip("s") not in _LISTS
            ]
            if longer := [i for i in others if self._length(i) > own]:
                self._ask("caption", [*filled, *longer])
        if len(filled) == 1 or len(found) == 1:
            return filled or found
        whole = [i for i in filled if stems[i] in CAPTIONS]
        if len(whole) == 1 and stems[whole[0]] != "title":  # caption beside raw_caption
            word = stems[whole[0]].rstrip("s")
            others = [self.plain[i] for i in filled if i not in whole]
            if all(word in name and not re.search("_[a-z]{2}$", name) for name in others):
                return whole
        if found:
            if all(self.values[i] == self.values[found[0]] for i in found):
                return found[:1]
            self._ask("caption", filled or found)
        if len(rest) == 1 and all(map(_is_text, self.values[rest[0]][:5])):
            return rest
        if len(texts) > 1:
            self._ask("caption", texts)
        if not texts:
            self._fail("no column holds captions; name it with `--data.columns caption=COLUMN`")
        return texts

    def _has_phrases(self, column: int) -> bool:
        """Tests if half of a column's cells, or more, are phrases."""
        values = self.values[column]
        return 2 * sum(map(is_phrase, values)) >= len(values)

    def _length(self, column: int) -> float:
        """Mean length of a column's cells, if they differ."""
        cells = list(map(str, self.values[column]))
        return sum(map(len, cells)) / len(cells) if len(set(cells)) > 1 else 0.0

    def _marks(self, column: int, values: Sequence[Any]) -> bool:
        """Tests if a column marks captions as valid or not."""
        told = {str(value).lower() for value in values}
        if self.plain[column] in MARKS:
            return told <= {*YES, *_NO}
        return bool(told) and told <= {*_REVIEWED, *REFUSED}

    def _joint(self, column: int) -> str | None:
        """The mark that divides a cell of the column into several captions, if any does."""
        cells = [v for v in self.values[column] if isinstance(v, str) and v.strip()]
        cells = [cell for cell in cells if cell.strip()[0] not in "[{("]
        for mark in (*JOINTS, *WEAK_JOINTS):
            parts = [cell.split(mark) for cell in cells if mark in cell]
            share = _WEAKLY_JOINED if mark in WEAK_JOINTS else JOINED
            if len(parts) < share * max(len(cells), 1) or not mostly(_are_phrases, parts):
                continue
            if mark in WEAK_JOINTS and not self.plain[column].endswith("s"):
                self.source.note(
                    f"most cells of {self.names[column]!r} have {mark!r} inside and are one "
                    "caption each; if it divides several, call the column captions"
                )
                return None
            self.source.note(f"a cell holds several captions, with {mark!r} between")
            return mark
        return None

    def _split(self, taken: set[int]) -> int | None:
        if named := [i for i in self._called("split") if i not in taken]:
            return named[0]
        rest = [i for i in range(len(self.names)) if i not in taken and self.values[i]]
        flags = [i for i in rest if _is_split(self.plain[i])]
        if len(flags) > 1 and all(_is_flag(v) for i in flags for v in self.values[i]):
            names = ", ".join(repr(self.names[i]) for i in flags)
            self._fail(f"the columns {names} tell the split; write its name into one, called split")
        for index in rest:
            values = set(map(str, self.values[index]))
            by_name = self.plain[index] in SPLITS
            if all(map(_is_split, values)) and (by_name or len(values) > 1):
                return index
            if difflib.get_close_matches(self.plain[index], ["split"], cutoff=0.75):
                name, given = self.names[index], shlex.quote(f"split={self.names[index]}")
                self._fail(f"is {name!r} the split? Write split, or give `--data.columns {given}`")
        return None

    def _called(self, name: str) -> list[int]:
        return [i for i, plain in enumerate(self.plain) if plain == name]

    def _note(self, chosen: Chosen) -> None:
        roles = {i: "image" for i, _ in chosen.pairs} | dict.fromkeys(chosen.captions, "caption")
        roles |= {} if chosen.split is None else {chosen.split: "split"}
        roles |= {} if chosen.group is None else {chosen.group: "group"}
        index = re.compile(r"(unnamed_+\d+|index|)")
        ignored = [
            repr(name)
            for i, name in enumerate(self.names)
            if i not in roles and i not in chosen.marks and not index.fullmatch(self.plain[i])
        ]
        usual = {"image", "caption", "captions", "split"}
        if ignored or any(self.plain[i] not in usual for i in roles):
            said = [f"{role} is {self.names[i]!r}" for i, role in roles.items()]
            rest = f"; not read: {', '.join(ignored)}" if ignored else ""
            apart = len({captions for _, captions in chosen.pairs}) > 1
            each = (
                "each image has the captions of its number or word"
                if apart
                else "they share the captions"
            )
            rest = (f"; {each}" if len(chosen.pairs) > 1 else "") + rest
            self.source.note(f"{', '.join(said)}{rest}")
        for i in (i for name in ("lang", "language", "locale") for i in self._called(name)):
            if len(several := sorted(set(map(str, self.values[i])))) > 1:
                told = ", ".join(several)[:80]
                self.source.note(f"the captions are in several languages ({told}); all are read")

    def _ask(self, role: str, several: Sequence[int]) -> NoReturn:
        names = [self.names[i] for i in several]
        listed = ", ".join(map(repr, names[:-1])) + f" and {names[-1]!r}"
        one, two = (shlex.quote(f"{role}={name}") for name in names[:2])
        both = f", or take several with `{one},{two}`"
        if role == "image":
            both += ", which then share the captions"
        self._fail(
            f"the columns {listed} could each be the {role}; choose with "
            f"`--data.columns {one}`{both}"
        )

    def _fail(self, what: str) -> NoReturn:
        self.source.fail(self.place, f"{what} (the columns are {', '.join(self.names)[:200]})")


def _without_role(name: str) -> str:
    """Returns what is left of a plain heading without the words for image or caption."""
    words = re.findall(r"[^\W\d_]+|\d+", name)
    return "_".join(word for word in words if word not in _ROLE_WORDS)


def _is_flag(value: Any) -> bool:
    return str(value).strip().lower() in (*YES, *_NO)


def _is_text(value: Any) -> bool:
    return isinstance(value, (str, list, tuple, dict))


def _are_phrases(parts: Sequence[str]) -> bool:
    return all(is_phrase(part) for part in parts if part.strip())


def _is_address(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(("http://", "https://"))


def _names_image(value: Any) -> bool:
    return _is_address(value) or is_image_name(value)


def _is_split(value: str) -> bool:
    return known_split(value.strip().lower()) is not None
