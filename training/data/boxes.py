"""Boxes of what captions name: noun phrases of a data set's captions with their places.

Phrases of a file of boxes (`box_files`) are placed among the tokens of a split's captions. Captions
that are the sentences of another edition, reordered and corrected, are aligned first: Flickr30k
Entities annotates Flickr30k's captions, and Flickr8k has them for the same photographs, in another
order, a few in another wording. Then the boxes move into the part of the image that the encoder
sees.
"""

from __future__ import annotations

import dataclasses
import io
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from sat_tf.images.pillow import EXIF_ORIENTATION, centred_square
from sat_tf.vocabulary import SPECIAL_TOKENS, Vocabulary
from training.data.box_files import BoxedPhrase, read_boxes, skipped_note, split_words
from training.data.examples import AnyImage, Box, DataError, Example, Split, canonical_name

WORDS = Vocabulary(SPECIAL_TOKENS)
"""Splits captions into words as they stand."""

Place = tuple[int, int, int]
"""Caption, first and last token."""
Sentence = tuple[int, tuple[str, ...]]
"""Index among the sentences of its image, and words."""
Alignment = tuple[int, Sequence[int | None]]
"""Index of a caption, and the index in it of each word of a sentence; None if it lacks the word."""
Visible = Callable[[Sequence[Box]], list[Box]]

CLOSE = 0.75
"""Least ratio of common words, by difflib, at which a sentence may be a caption: one word in four
changed. Two different captions of an image are as close in 2 % of the pairs (Flickr8k, dev)."""

HELD_OUT = "held out"
"""Type of a phrase whose attributes never occur together in training."""

NO_SPAN = "phrases without a place in the caption"
BAD_SPAN = "phrases whose span does not fit the caption"
NO_CAPTION = "phrases of captions the split does not have"
NO_SENTENCE = "phrases of sentences that no caption resembles"
SEVERAL_IMAGES = "phrases of an image that could be several of the split"
NOT_SHOWN = "phrases whose boxes are outside the part of the image that the encoder sees"
NOT_READ = "phrases of images that cannot be read"

_WHOLE = 1e-3  # pixels by which the share of a whole one may miss it
_TOUCHES = 0.05  # pixels: shares with four digits of an edge on the view's may be as far inside
_ON_ITS_SIDE = (5, 6, 7, 8)  # orientations of EXIF


@dataclass(frozen=True)
class PlacedPhrase:
    """A phrase among the tokens of its caption.

    Attributes:
        phrase: The phrase.
        first: Index of its first token.
        last: Index of its last token.
        head: Index of the first token of its last word.
        pixel: Height and width of a pixel of the image that boxes were drawn on, as shares of the
            encoder's view.
    """

    phrase: BoxedPhrase
    first: int
    last: int
    head: int
    pixel: tuple[float, float] = (0.0, 0.0)


Placed = Mapping[tuple[int, int], Sequence[PlacedPhrase]]
"""(example, caption) -> its phrases."""


@dataclass(frozen=True, eq=False)
class PlacedBoxes:
    """Phrases of a split's captions with their boxes.

    Attributes:
        path: The file or folder that they are of; None for boxes of the data set itself.
        phrases: (image index, caption index) -> phrases, with boxes in the encoder's view.
        skipped: Reason -> how many boxes or phrases were left out for it.
    """

    path: Path | None
    phrases: Placed
    skipped: Mapping[str, int]


def place_boxes(
    path: Path | None, split: Split, resize: str, vocabulary: Vocabulary = WORDS
) -> PlacedBoxes:
    """Reads boxes and finds the phrases of a split's captions among them.

    Args:
        path: Boxes, see `box_files`; None takes the nouns of `Example.phrases`.
        split: Images with reference captions.
        resize: Policy of the encoder, `crop` or `squash`.
        vocabulary: Splits captions; by default, into words.

    Raises:
        DataError: The boxes cannot be read, or none is of a phrase of this split.
    """
    phrases, outside = read_boxes(path) if path else (_own_nouns(split.examples), Counter())
    placed, dropped = place_phrases(split.examples, phrases, vocabulary)
    placed, unseen = visible_phrases(split.examples, placed, resize)
    skipped = outside + dropped + unseen
    if not placed:
        found = f"no usable phrase of the {split.name} split's captions{skipped_note(skipped)}"
        raise DataError(f"{path or 'The data set'} has {found}.")
    return PlacedBoxes(path, placed, dict(skipped))


def _own_nouns(examples: Sequence[Example]) -> dict[str, list[BoxedPhrase]]:
    phrases: dict[str, list[BoxedPhrase]] = {}
    for example in examples:
        for one in example.phrases:
            noun, span = one.text.split()[-1], (one.word, one.word + 1)
            types = () if one.seen else (HELD_OUT,)
            phrase = BoxedPhrase(example.image_id, one.caption, noun, span, types, (one.box,))
            phrases.setdefault(phrase.image, []).append(phrase)
    return phrases


def place_phrases(
    examples: Sequence[Example],
    phrases: Mapping[str, Sequence[BoxedPhrase]],
    vocabulary: Vocabulary = WORDS,
) -> tuple[Placed, Counter[str]]:
    """Finds the phrases of images, by name, among the tokens of a split's captions.

    Returns:
        The phrases by caption; and reason -> how many were left out for it.
    """
    names = [canonical_name(example.image_id) for example in examples]
    by_name, dropped = _by_name(names, phrases)
    placed: dict[tuple[int, int], list[PlacedPhrase]] = {}
    for number, example in enumerate(examples):
        own = by_name.get(names[number], ())
        if not own:
            continue
        # Words of each blank-separated part of a caption; together they are the caption's.
        split = vocabulary.base_words
        captions = [[split(part) for part in text.split()] for text in example.captions]
        spans: dict[int, list[tuple[str, int, int]]] = {}
        written = [(one.caption, one.sentence) for one in own if one.sentence is not None]
        aligned: dict[Sentence, Alignment] = {}
        if written:
            aligned = align_captions(dict.fromkeys(written), map(split_words, example.captions))
        for phrase in own:
            for place in _places(captions, aligned, phrase, split):
                if isinstance(place, str):
                    dropped[place] += 1
                else:
                    caption, first, last = place
                    if caption not in spans:
                        words = sum(captions[caption], [])
                        spans[caption] = vocabulary.places(example.captions[caption], words)
                    (_, start, _), (_, head, end) = spans[caption][first], spans[caption][last]
                    found = PlacedPhrase(phrase, start, end, head)
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


def _places(
    captions: Sequence[Sequence[list[str]]],
    aligned: Mapping[Sentence, Alignment],
    phrase: BoxedPhrase,
    split: Callable[[str], list[str]],
) -> list[Place | str]:
    """Caption, first and last word of each place of a phrase, or why there is none."""
    if phrase.sentence is not None:
        return [_place_in_sentence(captions, aligned, phrase)]
    wanted = split(phrase.text)
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
    """Caption, first and last word wherever a caption has a phrase, or its plural in s."""
    found = []
    for number, parts in enumerate(captions):
        words = sum(parts, [])
        for first in range(len(words) - len(wanted) + 1):
            here = words[first : first + len(wanted)]
            if here[:-1] == wanted[:-1] and here[-1] in (wanted[-1], wanted[-1] + "s"):
                found.append((number, first, first + len(wanted) - 1))
    return found


def align_captions(
    sentences: Iterable[Sentence], captions: Iterable[Sequence[str]]
) -> dict[Sentence, Alignment]:
    """Finds the caption that each sentence is.

    It has the same words (of several such captions, the one of the same index comes first), or else
    is the closest one. No caption is given to two sentences, and none to a sentence that no
    caption is close to.
    """
    found: dict[Sentence, Alignment] = {}
    changed, free = [], dict(enumerate(map(tuple, captions)))
    for sentence in sentences:
        number, words = sentence
        same = [caption for caption, of_caption in free.items() if of_caption == words]
        if same:
            caption = number if number in same else same[0]
            found[sentence] = caption, range(len(free.pop(caption)))
        else:
            changed.append(sentence)
    # difflib is slow, and only a few captions are corrected.
    pairs = [
        (SequenceMatcher(None, sentence[1], words, autojunk=False), sentence, caption)
        for sentence in changed
        for caption, words in free.items()
    ]
    for matcher, sentence, caption in sorted(pairs, key=lambda pair: -pair[0].ratio()):
        if sentence not in found and caption in free and matcher.ratio() >= CLOSE:
            places: list[int | None] = [None] * len(sentence[1])
            for block in matcher.get_matching_blocks():
                places[block.a : block.a + block.size] = range(block.b, block.b + block.size)
            found[sentence] = caption, places
            del free[caption]
    return found


def visible_boxes(image: AnyImage, resize: str) -> Visible:
    """Returns a function from boxes of an image to boxes of the encoder's view of it.

    A box outside the view, or that only touches it, is left out; one on its edge is cut. Edges that
    are whole pixels stay exact: a share of the image's side is rounded.

    Args:
        image: As in `Example.image`; only its size is read.
        resize: The encoder's policy: `squash` shows everything, `crop` the centred square.
    """
    if resize == "squash":
        return list
    height, width = image_size(image)
    top, left, side = centred_square(height, width)

    def visible(boxes: Sequence[Box]) -> list[Box]:
        pixels = np.array(boxes) * (height, width, height, width)
        whole = np.round(pixels)
        pixels = np.where(np.abs(pixels - whole) < _WHOLE, whole, pixels)
        shown = np.clip(pixels - (top, left, top, left), 0.0, side)
        large = (shown[:, 2:] - shown[:, :2] > _TOUCHES).all(axis=1)
        return [tuple(box) for box in (shown[large] / side).tolist()]

    return visible


def pixel_of(
    shape: tuple[int, int], resize: str, size: tuple[float, float] | None
) -> tuple[float, float]:
    """Returns height and width of a pixel as shares of the encoder's view.

    Args:
        shape: Height and width of the image's file.
        resize: As in `visible_boxes`.
        size: Width and height of the image whose pixels are meant; None is the file.
    """
    sides = shape if resize == "squash" else (min(shape), min(shape))
    pixels = shape if size is None else size[::-1]
    parts = zip(shape, sides, pixels, strict=True)
    return tuple(whole / side / count for whole, side, count in parts)


def visible_phrases(
    examples: Sequence[Example], placed: Placed, resize: str
) -> tuple[Placed, Counter[str]]:
    """Moves the boxes of phrases into the encoder's view.

    Returns:
        The phrases that the view shows; and reason -> how many were left out for it.
    """
    shown: dict[tuple[int, int], list[PlacedPhrase]] = {}
    dropped: Counter[str] = Counter()
    views: dict[int, tuple[Visible, tuple[int, int]] | None] = {}
    for (number, caption), phrases in placed.items():
        if number not in views:
            try:
                image = examples[number].image
                views[number] = visible_boxes(image, resize), image_size(image)
            except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
                views[number] = None  # other parts skip and count such images
        if views[number] is None:
            dropped[NOT_READ] += len(phrases)
            continue
        view, shape = views[number]
        for one in phrases:
            if boxes := view(one.phrase.boxes):
                phrase = dataclasses.replace(one.phrase, boxes=tuple(boxes))
                pixel = pixel_of(shape, resize, phrase.size)
                found = dataclasses.replace(one, phrase=phrase, pixel=pixel)
                shown.setdefault((number, caption), []).append(found)
            else:
                dropped[NOT_SHOWN] += 1
    return shown, dropped


def image_size(image: AnyImage) -> tuple[int, int]:
    """Reads `(height, width)` of an image as it is shown, from its header alone.

    Raises:
        OSError: The image cannot be read.
    """
    if isinstance(image, np.ndarray):
        return image.shape[0], image.shape[1]
    with Image.open(io.BytesIO(image.read_bytes())) as opened:
        turned = opened.getexif().get(EXIF_ORIENTATION, 1) in _ON_ITS_SIDE
        width, height = opened.size
    return (width, height) if turned else (height, width)
