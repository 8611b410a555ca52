"""Boxes of what captions name: noun phrases of a data set's captions with their places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np

from sat_tf.vocabulary import tokenize
from training.data.caption_alignment import Alignment, Sentence, align_captions, split_words
from training.data.examples import Example, canonical_name

Box = tuple[float, float, float, float]
Place = tuple[int, int, int]
"""Caption, first and last token."""

OUTSIDE = "boxes outside the image, or without an area"
NO_SPAN = "phrases without a place in the caption"
BAD_SPAN = "phrases whose span does not fit the caption"
NO_CAPTION = "phrases of captions the split does not have"
NO_SENTENCE = "phrases of sentences that no caption resembles"
SEVERAL_IMAGES = "phrases of an image that could be several of the split"


def skipped_note(dropped: Mapping[str, int]) -> str:
    """Returns `; skipped: boxes outside ... (3), phrases ... (2)`; nothing if none was dropped."""
    counts = ", ".join(f"{reason} ({count:,})" for reason, count in dropped.items())
    return f"; skipped: {counts}" if counts else ""


@dataclass(frozen=True)
class BoxedPhrase:
    """A noun phrase of a caption and the boxes of what it names.

    Attributes:
        image: The image's id, a file name.
        caption: Index of the caption (or the sentence) among the image's, -1 if it is not among
            them; None is every caption that has the words.
        text: The phrase as written.
        span: `[a, b)` over the caption's blank-separated tokens, or over `sentence`; or None.
        types: Such as people or scene.
        boxes: `(top, left, bottom, right)`, shares of the image's sides; the place is their union.
        sentence: The words, by `split_words`, of a sentence that is one of the captions, perhaps
            in another place and wording; None if `caption` is the caption's own index.
    """

    image: str
    caption: int | None
    text: str
    span: tuple[int, int] | None
    types: tuple[str, ...]
    boxes: tuple[Box, ...]
    sentence: tuple[str, ...] | None = None


@dataclass(frozen=True)
class PlacedPhrase:
    """A phrase among the tokens of its caption.

    Attributes:
        phrase: The phrase.
        first: Index of its first word in `tokenize(caption)`.
        last: Index of its last word.
    """

    phrase: BoxedPhrase
    first: int
    last: int


def place_phrases(
    examples: Sequence[Example], phrases: Mapping[str, Sequence[BoxedPhrase]]
) -> tuple[dict[tuple[int, int], list[PlacedPhrase]], Counter[str]]:
    """Finds phrases among the tokens of a split's captions.

    Args:
        examples: The split's.
        phrases: Image -> its phrases.

    Returns:
        (example, caption) -> its phrases; and reason -> how many were left out for it.
    """
    names = [canonical_name(example.image_id) for example in examples]
    by_name, dropped = _by_name(names, phrases)
    placed: dict[tuple[int, int], list[PlacedPhrase]] = {}
    for number, example in enumerate(examples):
        own = by_name.get(names[number], ())
        captions = [_tokens(caption) for caption in example.captions] if own else []
        aligned = _aligned(own, example.captions)
        for phrase in own:
            for place in _places(captions, aligned, phrase):
                if isinstance(place, str):
                    dropped[place] += 1
                else:
                    caption, first, last = place
                    found = PlacedPhrase(phrase, first, last)
                    placed.setdefault((number, caption), []).append(found)
    return placed, dropped


def _by_name(
    names: Sequence[str], phrases: Mapping[str, Sequence[BoxedPhrase]]
) -> tuple[dict[str, list[BoxedPhrase]], Counter[str]]:
    """Phrases by the names of a split's images; and reason -> how many were left out for it.

    An image of Flickr30k Entities may have a longer name elsewhere: 1000268201.jpg is
    1000268201_693b08cb0e.jpg in Flickr8k.
    """
    longer: dict[str, set[str]] = {}
    for name in names:
        longer.setdefault(PurePosixPath(name).stem.partition("_")[0], set()).add(name)
    present, by_name, dropped = set(names), {}, Counter()
    for image, found in phrases.items():
        name = canonical_name(image)
        if name not in present and found[0].sentence is not None:
            likely = longer.get(PurePosixPath(name).stem, {name})
            if len(likely) > 1:
                dropped[SEVERAL_IMAGES] += len(found)
                continue
            (name,) = likely
        by_name.setdefault(name, []).extend(found)
    return by_name, dropped


def _tokens(caption: str) -> list[list[str]]:
    """Tokens of each blank-separated part of a caption; together they are `tokenize(caption)`."""
    return [tokenize(part) for part in caption.split()]


def _aligned(phrases: Sequence[BoxedPhrase], captions: Sequence[str]) -> dict[Sentence, Alignment]:
    """Captions of the sentences that phrases bring with them."""
    written = [(one.caption, one.sentence) for one in phrases if one.sentence is not None]
    return align_captions(dict.fromkeys(written), map(split_words, captions)) if written else {}


def _places(
    captions: Sequence[Sequence[list[str]]],
    aligned: Mapping[Sentence, Alignment],
    phrase: BoxedPhrase,
) -> list[Place | str]:
    """Caption, first and last token of each place of a phrase, or why there is none."""
    if phrase.sentence is not None:
        return [_place_in_sentence(captions, aligned, phrase)]
    wanted = tokenize(phrase.text)
    if phrase.caption is None:
        return _occurrences(captions, wanted) if wanted else []
    if not 0 <= phrase.caption < len(captions):
        return [NO_CAPTION]
    if phrase.span is None:
        return [NO_SPAN]
    parts, (start, end) = captions[phrase.caption], phrase.span
    if not 0 <= start < end <= len(parts):
        return [BAD_SPAN]
    # The words of a phrase are few: they tell whether the span is one of this caption.
    if not wanted or sum(parts[start:end], []) != wanted:
        return [BAD_SPAN]
    first = sum(map(len, parts[:start]))
    return [(phrase.caption, first, first + len(wanted) - 1)]


def _place_in_sentence(
    captions: Sequence[Sequence[list[str]]],
    aligned: Mapping[Sentence, Alignment],
    phrase: BoxedPhrase,
) -> Place | str:
    if (phrase.caption, phrase.sentence) not in aligned:
        return NO_SENTENCE
    caption, places = aligned[phrase.caption, phrase.sentence]
    here = places[slice(*phrase.span)]
    if not here or None in here or here[-1] - here[0] != len(here) - 1:
        return NO_SPAN
    tokens = sum(captions[caption], [])
    tokens_of_words = [n for n, token in enumerate(tokens) for _ in split_words(token)]
    return caption, tokens_of_words[here[0]], tokens_of_words[here[-1]]


def _occurrences(captions: Sequence[Sequence[list[str]]], wanted: Sequence[str]) -> list[Place]:
    """Caption, first and last token wherever a caption has a phrase, or its plural in s."""
    found = []
    for number, parts in enumerate(captions):
        words = sum(parts, [])
        for first in range(len(words) - len(wanted) + 1):
            here = words[first : first + len(wanted)]
            if here[:-1] == wanted[:-1] and here[-1] in (wanted[-1], wanted[-1] + "s"):
                found.append((number, first, first + len(wanted) - 1))
    return found


def union_coverage(boxes: Sequence[Box], height: int, width: int) -> np.ndarray:
    """Computes the exact share of each cell inside the union of the boxes, `[height, width]`."""
    rows = _edges([edge for top, _, bottom, _ in boxes for edge in (top, bottom)], height)
    columns = _edges([edge for _, left, _, right in boxes for edge in (left, right)], width)
    y, x = (rows[1:] + rows[:-1]) / 2.0, (columns[1:] + columns[:-1]) / 2.0
    inside = np.zeros([len(y), len(x)], bool)
    for top, left, bottom, right in boxes:
        inside |= np.outer((top <= y) & (y <= bottom), (left <= x) & (x <= right))
    areas = inside * np.outer(np.diff(rows), np.diff(columns))
    cell_rows = np.minimum((y * height).astype(int), height - 1)
    cell_columns = np.minimum((x * width).astype(int), width - 1)
    coverage = np.zeros([height, width])
    np.add.at(coverage, (cell_rows[:, None], cell_columns[None, :]), areas)
    return np.clip(coverage * height * width, 0.0, 1.0)


def _edges(of_boxes: Sequence[float], cells: int) -> np.ndarray:
    return np.unique(np.concatenate([np.arange(cells + 1) / cells, of_boxes]))
