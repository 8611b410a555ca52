"""Boxes of what captions name: noun phrases of a data set's captions with their places.

Two layouts are read:

    Flickr30k Entities' folder
        Sentences/NAME.txt      a caption per line, [/EN#ID/TYPE/TYPE the phrase] in it
        Annotations/NAME.xml    boxes in pixels, each of one or several IDs, and the image's size
        The image is NAME.jpg, or else the only one with NAME up to the first `_` of its file name.
    JSON lines, one phrase per line
        image      NAME.jpg, or the end of its path, if no other image of the split has that
        caption    number among the captions of the image, from 0, empty ones not counted; or null
        phrase     as written
        span       [a, b) over the blank-separated tokens of that caption; or null, if it has the
                   phrase once
        type       list of types, or none
        boxes      list of [x0, y0, x1, y1], shares of the image's sides
        size       [width, height] of the image that boxes were drawn on, pixels; or none

Phrases are then placed among the tokens of a split's captions. Captions that are the sentences of
another edition, reordered and corrected, are aligned first: Flickr30k Entities annotates
Flickr30k's captions, and Flickr8k has them for the same photographs, in another order, a few in
another wording. Last, the boxes move into the part of the image that the encoder sees.

References:
    Plummer et al. (2015), "Flickr30k Entities", arXiv:1505.04870.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from sat_tf.images.pillow import EXIF_ORIENTATION, centred_square
from sat_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from sat_tf.text.words import tokenize
from training.data.examples import AnyImage, Box, DataError, Example, Split, canonical_name

WORDS = Vocabulary(SPECIAL_TOKENS)
"""Splits captions into words as they are."""

Place = tuple[int, int, int]
"""Caption, first and last token."""
Sentence = tuple[int, tuple[str, ...]]
"""Index among the sentences of its image, and words."""
Alignment = tuple[int, Sequence[int | None]]
"""Index of a caption, and the index in it of each word of a sentence; None if it lacks the word."""

CLOSE = 0.75
"""Least ratio of common words, by difflib, at which a sentence may be a caption: one word in four
changed. Two different captions of an image are as close in 2 % of the pairs (Flickr8k, dev)."""

HELD_OUT = "held out"
"""Type of a phrase with attributes that never occur together in training."""

OUTSIDE = "boxes outside the image, or without an area"
NO_SPAN = "phrases without a place in the caption"
BAD_SPAN = "phrases whose span does not fit the caption"
NO_CAPTION = "phrases of captions the split does not have"
NO_SENTENCE = "phrases of sentences that no caption resembles"
SEVERAL_IMAGES = "phrases of an image that could be several of the split"
NOT_SHOWN = "phrases whose boxes are outside the part of the image that the encoder sees"
NOT_READ = "phrases of images that cannot be read"
TURNED = "phrases of photographs that EXIF turns and whose `size` is that before turning"

_PART = re.compile("'?[^']+")
_PHRASE = re.compile(r"\[/EN#(?P<entity>[^/\s]+)(?P<types>(?:/[^\s\]/]+)*) (?P<words>[^\]]*)\]")
_TOLERANCE = 0.01  # of a side: boxes drawn by hand end a pixel outside now and then
_WHOLE = 1e-3  # pixels by which the share of a whole one may miss it
_TOUCHES = 0.05  # pixels: shares with four digits of an edge on the view's may be as far inside
_ON_ITS_SIDE = (5, 6, 7, 8)  # orientations of EXIF


@dataclass(frozen=True)
class BoxedPhrase:
    """A noun phrase of a caption and the boxes of its objects."""

    image: str  # the image's id, a file name
    caption: int  # index of the caption or sentence among the image's, -1 if it is none of them
    text: str  # as written
    span: tuple[int, int] | None
    """`[a, b)` over the caption's blank-separated tokens, or over `sentence`."""
    types: tuple[str, ...]  # such as people or scene
    boxes: tuple[Box, ...]  # shares of the image's sides; the place is their union
    sentence: tuple[str, ...] | None = None
    """Words, by `split_words`, of a sentence that is one of the captions, perhaps in another place
    and wording; None if `caption` is the caption's own index."""
    size: tuple[float, float] | None = None
    """Width and height of the image that boxes were drawn on, pixels, if known."""


@dataclass(frozen=True)
class PlacedPhrase:
    """A phrase among the tokens of its caption."""

    phrase: BoxedPhrase
    first: int  # index of its first token
    last: int  # of its last token
    head: int  # of the first token of its last word
    pixel: tuple[float, float] = (0.0, 0.0)
    """Height and width of a pixel of the image that boxes were drawn on, shares of the view."""


Placed = Mapping[tuple[int, int], Sequence[PlacedPhrase]]
"""(example, caption) -> its phrases."""


@dataclass(frozen=True, eq=False)
class PlacedBoxes:
    """Phrases of a split's captions with their boxes."""

    path: Path | None  # the file or folder that they are of; None for boxes of the data set itself
    phrases: Placed  # (image index, caption index) -> phrases, with boxes in the encoder's view
    skipped: Mapping[str, int]  # reason -> how many boxes or phrases were left out for it


def place_boxes(
    path: Path | None, split: Split, resize: str, vocabulary: Vocabulary = WORDS
) -> PlacedBoxes:
    """Reads boxes and finds the phrases of a split's captions among them.

    Args:
        path: A folder of Flickr30k Entities, or a file of JSON lines; None takes the nouns of
            `Example.phrases`.
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
        raise DataError(
            f"{path or 'The data set'} has no usable phrase of the {split.name} split's captions"
            f"{skipped_note(skipped)}. It names images such as {next(iter(phrases), '')!r}; the "
            f"split's are called {split.examples[0].image_id!r}, ..."
        )
    return PlacedBoxes(path, placed, dict(skipped))


def skipped_note(dropped: Mapping[str, int]) -> str:
    """Returns `; skipped: boxes outside ... (3), phrases ... (2)`; nothing if none was dropped."""
    counts = ", ".join(f"{reason} ({count:,})" for reason, count in dropped.items())
    return f"; skipped: {counts}" if counts else ""


# Files.


def read_boxes(path: str | Path) -> tuple[dict[str, list[BoxedPhrase]], Counter[str]]:
    """Reads a folder of Flickr30k Entities, or a file of JSON lines.

    Phrases without a box in the image are left out and counted.

    Returns:
        Image -> its phrases; and reason -> how often something was left out for it.

    Raises:
        DataError: There is neither, it has another layout, or it holds no boxes.
    """
    path, dropped = Path(path), Counter()
    if not path.exists():
        raise DataError(f"There is no file or folder of boxes {path}.")
    phrases: dict[str, list[BoxedPhrase]] = {}
    count = 0
    for phrase, boxes in (_entities if path.is_dir() else _json_lines)(path):
        inside = tuple(box for box in map(_inside, boxes) if box is not None)
        count, dropped[OUTSIDE] = count + len(boxes), dropped[OUTSIDE] + len(boxes) - len(inside)
        if inside:
            whole = BoxedPhrase(**phrase, boxes=inside)
            phrases.setdefault(whole.image, []).append(whole)
    if 4 * dropped[OUTSIDE] >= max(count, 1):
        raise DataError(
            f"{path}: of {count} boxes, {dropped[OUTSIDE]} are {OUTSIDE.removeprefix('boxes ')}. "
            "JSON lines have boxes as [x0, y0, x1, y1], shares of the image's sides from 0 to 1, "
            "see docs/maps.md."
        )
    if not phrases:
        raise DataError(f"{path} holds no phrase with a box.")
    return phrases, +dropped


def _inside(box: Sequence[float]) -> Box | None:
    """`(top, left, bottom, right)` within the image, of `[x0, y0, x1, y1]`."""
    left, top, right, bottom = (float(edge) for edge in box)
    if min(left, top) < -_TOLERANCE or max(right, bottom) > 1.0 + _TOLERANCE:
        return None
    left, top, right, bottom = (min(max(edge, 0.0), 1.0) for edge in (left, top, right, bottom))
    return (top, left, bottom, right) if top < bottom and left < right else None


def _json_lines(path: Path) -> Iterator[tuple[dict, list]]:
    for number, line in enumerate(path.open("rb"), 1):
        try:
            if line.strip():
                yield _boxed_phrase(json.loads(line))
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            raise DataError(
                f"{path}, line {number}: expected a phrase with its boxes ({error}), got "
                f"{line[:80]!r}. Boxes in another layout, such as COCO's instances, are converted "
                "to JSON lines first, see docs/maps.md."
            ) from error


def _boxed_phrase(row: dict) -> tuple[dict, list[list[float]]]:
    span, types = row.get("span"), row.get("type") or ()
    phrase = {
        "image": str(row["image"]),
        "caption": -1 if row["caption"] is None else int(row["caption"]),
        "text": str(row["phrase"]),
        "span": None if span is None else (int(span[0]), int(span[1])),
        "types": (types,) if isinstance(types, str) else tuple(types),
        "size": _size(*row["size"]) if row.get("size") else None,
    }
    boxes = [[float(edge) for edge in box] for box in row["boxes"]]
    if any(len(box) != 4 for box in boxes):
        raise ValueError("a box has not four edges")
    return phrase, boxes


def _size(width: float | str, height: float | str) -> tuple[float, float]:
    size = float(width), float(height)
    if not 0 < min(size) <= max(size) < math.inf:
        raise ValueError("a size is not two positive numbers")
    return size


def _entities(folder: Path) -> Iterator[tuple[dict, list]]:
    sentences, annotations = folder / "Sentences", folder / "Annotations"
    if not (sentences.is_dir() and annotations.is_dir()):
        raise DataError(
            f"{folder} is not a folder of Flickr30k Entities. Looked for: Sentences/*.txt, "
            "Annotations/*.xml."
        )
    for path in sorted(annotations.glob("*.xml")):
        written = sentences / f"{path.stem}.txt"
        if not written.is_file():
            continue
        boxes, size = _entity_boxes(path)
        try:
            lines = written.read_text("utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise DataError(f"{written}: expected sentences in UTF-8 ({error}).") from error
        for number, line in enumerate(lines):
            for phrase in _sentence_phrases(line):
                if found := boxes.get(phrase.pop("entity")):
                    of_image = {"image": f"{path.stem}.jpg", "caption": number, "size": size}
                    yield of_image | phrase, found


def _entity_boxes(path: Path) -> tuple[dict[str, list[list[float]]], tuple[float, float]]:
    """Entity -> boxes `[x0, y0, x1, y1]`, shares of the sides; and these in pixels."""
    try:
        root = ElementTree.parse(path).getroot()
        width, height = _size(*(root.findtext(f"size/{side}", "") for side in ("width", "height")))
        sides, boxes = (width, height, width, height), {}
        for item in root.iter("object"):
            for box in item.iter("bndbox"):
                edges = [float(box.findtext(e, "")) for e in ("xmin", "ymin", "xmax", "ymax")]
                shares = [edge / side for edge, side in zip(edges, sides, strict=True)]
                for name in item.iter("name"):
                    boxes.setdefault((name.text or "").strip(), []).append(shares)
    except (ElementTree.ParseError, ValueError, ZeroDivisionError) as error:
        raise DataError(f"{path}: expected annotations of Flickr30k Entities ({error}).") from error
    return boxes, (width, height)


def _sentence_phrases(line: str) -> list[dict]:
    """Phrases of `A man in [/EN#2/clothing a red hat] .`, spans over its words."""
    sentence, phrases, end = [], [], 0
    for match in _PHRASE.finditer(line):
        sentence += split_words(line[end : match.start()])
        start = len(sentence)
        sentence += split_words(match["words"])
        end, types = match.end(), tuple(match["types"].split("/")[1:])
        found = {"text": match["words"], "entity": match["entity"], "types": types}
        phrases.append(found | {"span": (start, len(sentence))})
    sentence += split_words(line[end:])
    return [phrase | {"sentence": tuple(sentence)} for phrase in phrases]


def split_words(text: str) -> list[str]:
    """Splits a text into the words of `tokenize`, clitics apart: "man's" is "man 's"."""
    return [part for word in tokenize(text) for part in _PART.findall(word)]


# Places in captions.


def _own_nouns(examples: Sequence[Example]) -> dict[str, list[BoxedPhrase]]:
    phrases: dict[str, list[BoxedPhrase]] = defaultdict(list)
    for image in examples:
        for one in image.phrases:
            noun, span = one.text.split()[-1], (one.word, one.word + 1)
            types = () if one.seen else (HELD_OUT,)
            found = BoxedPhrase(image.image_id, one.caption, noun, span, types, (one.box,))
            phrases[image.image_id].append(found)
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
        if not (own := by_name.get(names[number])):
            continue
        # Words of each blank-separated part of a caption; together they are the caption's.
        split = vocabulary.base_words
        captions = [[split(part) for part in text.split()] for text in example.captions]
        spans: dict[int, list[tuple[str, int, int]]] = {}
        written = [(one.caption, one.sentence) for one in own if one.sentence is not None]
        aligned = align_captions(dict.fromkeys(written), map(split_words, example.captions))
        for phrase in own:
            place = _place(captions, aligned, phrase, split)
            if isinstance(place, str):
                dropped[place] += 1
                continue
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
    """Phrases by name of a split's images; and reason -> how many were left out for it.

    A name may lack folders that the other has, if only one image of the split ends so. An image of
    Flickr30k Entities may have a longer name: 1000268201.jpg is 1000268201_693b08cb0e.jpg in
    Flickr8k.
    """
    ends: dict[str, set[str]] = defaultdict(set)
    for name in names:
        path = PurePosixPath(name)
        for end in {path.name, path.stem.partition("_")[0]}:
            ends[end].add(name)
    present, by_name, dropped = set(names), defaultdict(list), Counter()
    for image, found in phrases.items():
        name = canonical_name(image)
        if name not in present:
            path = PurePosixPath(name)
            likely = {
                other
                for other in ends[path.name]
                if f"/{other}".endswith(f"/{name}") or f"/{name}".endswith(f"/{other}")
            }
            if not likely and found[0].sentence is not None:
                likely = ends[path.stem]
            if len(likely) > 1:
                dropped[SEVERAL_IMAGES] += len(found)
            if len(likely) != 1:
                continue
            (name,) = likely
        by_name[name] += found
    return by_name, dropped


def _place(
    captions: Sequence[Sequence[list[str]]],
    aligned: Mapping[Sentence, Alignment],
    phrase: BoxedPhrase,
    split: Callable[[str], list[str]],
) -> Place | str:
    """Caption, first and last word of a phrase, or why there is none."""
    if phrase.sentence is not None:
        return _place_in_sentence(captions, aligned, phrase)
    if not 0 <= phrase.caption < len(captions):
        return NO_CAPTION
    parts, wanted = captions[phrase.caption], split(phrase.text)
    if phrase.span is None:
        words, count = sum(parts, []), len(wanted)
        starts = [n for n in range(len(words)) if words[n : n + count] == wanted]
        return (phrase.caption, starts[0], starts[0] + count - 1) if len(starts) == 1 else NO_SPAN
    start, end = phrase.span
    # The words of a phrase are few: they tell whether the span is one of this caption.
    if not (0 <= start < end <= len(parts) and wanted and sum(parts[start:end], []) == wanted):
        return BAD_SPAN
    first = sum(map(len, parts[:start]))
    return phrase.caption, first, first + len(wanted) - 1


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
    tokens = enumerate(sum(captions[caption], []))
    of_words = [n for n, token in tokens for _ in split_words(token)]
    return caption, of_words[here[0]], of_words[here[-1]]


def align_captions(
    sentences: Iterable[Sentence], captions: Iterable[Sequence[str]]
) -> dict[Sentence, Alignment]:
    """Finds the caption that each sentence is.

    It has the same words (of several such captions, the one of the same index is first), or else
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


# The encoder's view.


def visible(boxes: Sequence[Box], shape: tuple[int, int], resize: str) -> list[Box]:
    """Moves boxes of an image into the part of it that an encoder sees.

    A box outside that view, or that only touches it, is left out; one on its edge is cut. Edges
    that are whole pixels stay exact: a share of the image's side is rounded.

    `shape` is the height and width of the image; of the policies, `squash` shows everything, `crop`
    the centred square.
    """
    if resize == "squash":
        return list(boxes)
    height, width = shape
    top, left, side = centred_square(height, width)
    pixels = np.array(boxes) * (height, width, height, width)
    whole = np.round(pixels)
    pixels = np.where(np.abs(pixels - whole) < _WHOLE, whole, pixels)
    shown = np.clip(pixels - (top, left, top, left), 0.0, side)
    large = (shown[:, 2:] - shown[:, :2] > _TOUCHES).all(axis=1)
    return [tuple(box) for box in (shown[large] / side).tolist()]


def pixel_of(
    size: tuple[float, float] | None, shape: tuple[int, int], resize: str
) -> tuple[float, float]:
    """Returns height and width of a pixel as shares of the view, see `visible`.

    `size` is the width and height of the image with these pixels; None is the file.
    """
    sides = shape if resize == "squash" else [min(shape)] * 2
    pixels = shape if size is None else size[::-1]
    parts = zip(shape, sides, pixels, strict=True)
    return tuple(whole / side / count for whole, side, count in parts)


def visible_phrases(
    examples: Sequence[Example], placed: Placed, resize: str
) -> tuple[Placed, Counter[str]]:
    """Moves the boxes of phrases into the encoder's view.

    Boxes with the size of a photograph before EXIF turns it are left out: some programs draw on
    the pixels as stored, others upright with the stored size.

    Returns:
        The phrases that the view shows; and reason -> how many were left out for it.
    """
    shown: dict[tuple[int, int], list[PlacedPhrase]] = {}
    dropped: Counter[str] = Counter()
    sizes: dict[int, tuple[tuple[int, int], bool] | None] = {}
    for (number, caption), phrases in placed.items():
        if number not in sizes:
            try:
                sizes[number] = image_size(examples[number].image)
            except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
                sizes[number] = None  # other parts skip and count such images
        if sizes[number] is None:
            dropped[NOT_READ] += len(phrases)
            continue
        shape, turned = sizes[number]
        for one in phrases:
            size = one.phrase.size
            if turned and size and (size[0] - size[1]) * (shape[1] - shape[0]) < 0:
                dropped[TURNED] += 1
            elif boxes := visible(one.phrase.boxes, shape, resize):
                phrase = dataclasses.replace(one.phrase, boxes=tuple(boxes))
                found = dataclasses.replace(one, phrase=phrase, pixel=pixel_of(size, shape, resize))
                shown.setdefault((number, caption), []).append(found)
            else:
                dropped[NOT_SHOWN] += 1
    return shown, dropped


def image_size(image: AnyImage) -> tuple[tuple[int, int], bool]:
    """Reads height and width of an image as it is shown, and whether EXIF turns it on its side.

    Raises:
        OSError: The image cannot be read.
    """
    if isinstance(image, np.ndarray):
        return image.shape[:2], False
    with Image.open(io.BytesIO(image.read_bytes())) as opened:
        turned = opened.getexif().get(EXIF_ORIENTATION, 1) in _ON_ITS_SIDE
        return (opened.size if turned else opened.size[::-1]), turned
