"""The built-in data set: drawn scenes of one to three coloured shapes among distractors.

Needs no file and no network. Example `i` of a split depends on `(seed, split, i)` alone; its
layout and captions do not depend on the image size. The marks around the objects share their
colours, so that the colours in an image do not tell what its objects are. The colour-shape pairs
of `HELD_OUT` occur in `dev` and `test` only, as often as any other pair.

All images share the same five sentence frames, and the order of the objects is visible
(`reading_order`), so that a captioner that sees the image well can write all five captions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.data.examples import SPLITS, Box, Example, Phrase, Split
from training.data.sources.scene_drawing import (
    COLOURS,
    MARK_RADIUS,
    MARKS,
    SHAPES,
    UNITS,
    Mark,
    SceneObject,
    draw,
)

SIZES = ("small", "large")
RELATIONS = ("left of", "right of", "above", "below")
HELD_OUT = (("red", "star"), ("green", "triangle"), ("blue", "cross"), ("yellow", "square"))
COUNTS = {"train": 8000, "dev": 500, "test": 500}
SIDES = {"small": (14.0, 16.0), "large": (19.5, 22.0)}
OBJECT_SHARES = (0.25, 0.45, 0.3)  # of images with one, two, three objects

_MARK_COUNT = (4, 8)
_EDGE = 1.0  # minimum distance of an object from the image's edge
_GAP = 2.0  # minimum distance between two objects' boxes
_CLEAR = 8.0  # margin by which one axis must dominate for a clear relation
_STEP = 6.0  # minimum distance of neighbours from left to right
_COLOUR_NAMES = tuple(COLOURS)
PAIRS = tuple((colour, shape) for colour in COLOURS for shape in SHAPES)
_TRAINING_PAIRS = tuple(pair for pair in PAIRS if pair not in HELD_OUT)
# Words before and after the objects in the first four captions.
_FRAMES = (("", ""), ("there is", ""), ("the picture shows", ""), ("a picture of", ""))


def load(split: str, *, seed: int = 0, count: int | None = None, image_size: int = 64) -> Split:
    """Draws a split of images uint8 `[image_size, image_size, 3]`, of at least 32 pixels a side."""
    examples = (_example(split, seed, i, image_size) for i in range(count or COUNTS[split]))
    return Split(split, tuple(examples))


def _example(split: str, seed: int, index: int, image_size: int) -> Example:
    rng = np.random.default_rng((seed, SPLITS.index(split), index))
    objects = place_objects(rng, _TRAINING_PAIRS if split == "train" else PAIRS)
    marks = place_marks(rng, objects)
    image = draw(objects, marks, rng, image_size)
    captions, phrases = describe(objects)
    return Example(f"scenes-{split}-{index:06d}", image, captions, phrases)


def _choose_pairs(
    rng: np.random.Generator, pairs: Sequence[tuple[str, str]], number: int
) -> list[tuple[str, str]]:
    """Chooses pairs of different colours, so that "red" in a caption names one object."""
    while True:
        chosen = [pairs[k] for k in rng.integers(len(pairs), size=number)]
        if len({colour for colour, _ in chosen}) == number:
            return chosen


def place_objects(
    rng: np.random.Generator, pairs: Sequence[tuple[str, str]]
) -> tuple[SceneObject, ...]:
    """Places one to three objects of different colours, with clear relations between them."""
    number = int(np.searchsorted(np.cumsum(OBJECT_SHARES)[:-1], rng.random(), side="right")) + 1
    chosen = _choose_pairs(rng, pairs, number)
    sizes = [SIZES[k] for k in rng.integers(len(SIZES), size=number)]
    sides = [float(rng.uniform(*SIDES[size])) for size in sizes]
    while True:
        places = rng.random((number, 2)).tolist()
        centres = [
            tuple(_EDGE + side / 2 + share * (UNITS - side - 2 * _EDGE) for share in place)
            for place, side in zip(places, sides, strict=True)
        ]
        if _is_clear(centres, sides):
            return tuple(
                SceneObject(size, colour, shape, x, y, side)
                for size, (colour, shape), (x, y), side in zip(
                    sizes, chosen, centres, sides, strict=True
                )
            )


def _is_clear(centres: list[tuple[float, float]], sides: list[float]) -> bool:
    """Returns whether no boxes touch and each relation that captions name is clear."""
    for i, (x, y) in enumerate(centres):
        for j in range(i):
            reach = (sides[i] + sides[j]) / 2 + _GAP
            if max(abs(x - centres[j][0]), abs(y - centres[j][1])) < reach:
                return False
    row = sorted(centres)
    for (x, y), (next_x, next_y) in zip(row, row[1:], strict=False):
        if abs(abs(next_x - x) - abs(next_y - y)) < _CLEAR:
            return False
        if next_x - x < _STEP:
            return False
    return True


def place_marks(rng: np.random.Generator, objects: tuple[SceneObject, ...]) -> tuple[Mark, ...]:
    """Places marks that touch neither boxes nor each other; fewer if there is no room."""
    wanted = int(rng.integers(_MARK_COUNT[0], _MARK_COUNT[1] + 1))
    kinds = rng.integers(len(MARKS), size=wanted)
    colours = rng.integers(len(_COLOUR_NAMES), size=wanted)
    angles = rng.uniform(0.0, 2 * np.pi, wanted)
    room = rng.uniform(MARK_RADIUS, UNITS - MARK_RADIUS, (6 * wanted, 2)).tolist()
    free = []
    for x, y in room:
        if len(free) == wanted:
            break
        if all(
            max(abs(x - item.x), abs(y - item.y)) > item.side / 2 + MARK_RADIUS + 0.5
            for item in objects
        ) and all((x - a) ** 2 + (y - b) ** 2 > 4 * MARK_RADIUS**2 for a, b in free):
            free.append((x, y))
    return tuple(
        Mark(MARKS[kind], _COLOUR_NAMES[colour], x, y, float(angle))
        for (x, y), kind, colour, angle in zip(free, kinds, colours, angles, strict=False)
    )


def relation(first: Box, second: Box) -> str:
    """The word of `RELATIONS` for the position of box `first` relative to box `second`.

    The axis along which the centres are further apart decides.
    """
    down = (first[0] + first[2] - second[0] - second[2]) / 2
    across = (first[1] + first[3] - second[1] - second[3]) / 2
    if abs(across) >= abs(down):
        return "left of" if across < 0 else "right of"
    return "above" if down < 0 else "below"


def reading_order(objects: Sequence[SceneObject]) -> tuple[SceneObject, ...]:
    """Sorts objects from left to right, the order in which captions name them.

    With one visible order for all captions, a captioner learns early to look for the next object.
    """
    return tuple(sorted(objects, key=lambda item: item.x))


def describe(objects: Sequence[SceneObject]) -> tuple[tuple[str, ...], tuple[Phrase, ...]]:
    """Writes the five captions of a scene, and each noun phrase of each with its box.

    A caption chains the objects by their relations, within its frame.

    Args:
        objects: One to three, in any order, whose relations are clear.
    """
    there = reading_order(objects)
    captions, phrases = [], []
    for before, after in (*_FRAMES, ("", "alone") if len(there) == 1 else ("we see", "")):
        words = before.split()
        for index, item in enumerate(there):
            if index:
                words += relation(there[index - 1].box, item.box).split()
            text = f"{item.size} {item.colour} {item.shape}"
            words += ["a", *text.split()]
            seen = (item.colour, item.shape) not in HELD_OUT
            phrases.append(Phrase(len(captions), len(words) - 1, item.box, text, seen))
        captions.append(" ".join([*words, *after.split()]))
    return tuple(captions), tuple(phrases)
