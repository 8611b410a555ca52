"""The built-in data set: drawn scenes of one to three coloured shapes among distractors.

Needs no file and no network. Example `i` of a split depends on `(seed, split, i)` alone; its
layout and captions do not depend on the image size. The marks around the objects share their
colours, so that the colours in an image do not betray its objects. The colour-shape pairs
of `HELD_OUT` occur in `dev` and `test` only, as often as any other pair.

All images share the same five sentence frames, and the order of the objects is visible,
from left to right, so that a captioner that sees the image well can write all five captions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from training.data.config import DataSet
from training.data.examples import SPLITS, Box, Example, Phrase, Split

# --- drawing: each shape is a signed distance (negative inside), evaluated in its own window, so
# that thousands of images are drawn in seconds; x points right and y down ---

UNITS = 64.0
"""Lengths are in 64ths of the image's side, whatever its size in pixels."""

COLOURS = {
    "red": (225, 45, 40),
    "green": (50, 175, 60),
    "blue": (55, 95, 250),
    "yellow": (250, 215, 45),
    "purple": (175, 65, 215),
    "cyan": (75, 220, 225),
    "white": (242, 242, 242),
}
SHAPES = ("circle", "square", "triangle", "diamond", "star", "cross")
MARKS = ("line", "tick", "dot", "ring")

_STROKE = 0.8  # half the width of a mark's stroke
_DOT_RADIUS = 1.6
_RING_RADIUS = 2.6
_HALF_LENGTHS = np.array([3.2, 1.4, 0.0, 0.0], np.float32)  # of the strokes of MARKS


@dataclass(frozen=True)
class SceneObject:
    """One object of a scene; the centre and the side of its square box in `UNITS`."""

    size: str
    colour: str
    shape: str
    x: float
    y: float
    side: float

    @property
    def box(self) -> tuple[float, float, float, float]:
        """`(top, left, bottom, right)` as shares of the image's side."""
        half = self.side / 2
        edges = (self.y - half, self.x - half, self.y + half, self.x + half)
        return tuple(edge / UNITS for edge in edges)


@dataclass(frozen=True)
class Mark:
    """A distractor that no caption mentions, with its centre and direction (radians)."""

    kind: str
    colour: str
    x: float
    y: float
    angle: float


MARK_RADIUS = 4.0  # maximum reach of a mark from its centre


def _half_planes(normals: np.ndarray, offsets: np.ndarray, x, y) -> np.ndarray:
    return normals[:, 0, None, None] * x + normals[:, 1, None, None] * y - offsets[:, None, None]


def _edges(points: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Outward unit normals and offsets of the lines through consecutive `points`.

    The points surround the origin.
    """
    a = np.array(points)
    along = np.roll(a, -1, axis=0) - a
    normals = np.stack([along[:, 1], -along[:, 0]], axis=1)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    offsets = np.sum(normals * a, axis=1)
    sign = np.where(offsets < 0, -1.0, 1.0)
    return (normals * sign[:, None]).astype(np.float32), (offsets * sign).astype(np.float32)


def _pentagram() -> list[tuple[float, float]]:
    # Every second corner of a pentagon, stretched so that the star fills its box.
    corners = [(math.sin(k * 0.8 * math.pi), -math.cos(k * 0.8 * math.pi)) for k in range(5)]
    wide = max(x for x, _ in corners)
    low = max(y for _, y in corners)
    return [(x / wide, (y + 1.0) / (low + 1.0) * 2.0 - 1.0) for x, y in corners]


_TRIANGLE = _edges([(0.0, -1.0), (1.0, 1.0), (-1.0, 1.0)])
_STAR = _edges(_pentagram())
_CROSS_ARM = 0.34


def _shape_distance(shape: str, x: np.ndarray, y: np.ndarray, half: float) -> np.ndarray:
    """Signed distance to a shape in a box of half side `half`; `x` is a row, `y` a column."""
    across, down = np.abs(x), np.abs(y)
    box = np.maximum(across, down) - half
    if shape == "square":
        return box
    if shape == "circle":
        return np.sqrt(x * x + y * y) - half
    if shape == "cross":
        return np.maximum(box, np.minimum(across, down) - _CROSS_ARM * half)
    if shape == "diamond":
        return np.maximum(box, (across + down - half) * math.sqrt(0.5))
    if shape == "triangle":
        normals, offsets = _TRIANGLE
        return np.maximum(box, _half_planes(normals, offsets * half, x, y).max(axis=0))
    # A point is in the star if it is on the inner side of at least four of its five lines.
    normals, offsets = _STAR
    planes = _half_planes(normals, offsets * half, x, y)
    return np.maximum(box, np.sort(planes, axis=0)[3])


def _segment(x, y, half_length, cos, sin) -> np.ndarray:
    along = np.minimum(np.maximum(x * cos + y * sin, -half_length), half_length)
    return np.sqrt((x - along * cos) ** 2 + (y - along * sin) ** 2) - _STROKE


def mark_distances(marks: tuple[Mark, ...], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Signed distances `[M, h, w]` to marks centred at the origin.

    A tick is two strokes that meet at a right angle.

    Args:
        marks: M marks.
        x: `[M, 1, w]`.
        y: `[M, h, 1]`.
    """
    kind = np.array([MARKS.index(mark.kind) for mark in marks])[:, None, None]
    angle = np.array([mark.angle for mark in marks], np.float32)[:, None, None]
    cos, sin = np.cos(angle), np.sin(angle)
    half = _HALF_LENGTHS[kind]
    bend = np.where(kind == MARKS.index("tick"), half, np.float32(0.0))
    first = _segment(x - bend * cos, y - bend * sin, half, cos, sin)
    second = _segment(x + bend * sin, y - bend * cos, bend, -sin, cos)
    round_ = np.sqrt(x * x + y * y)
    strokes = np.where(bend > 0, np.minimum(first, second), first)
    strokes = np.where(kind == MARKS.index("dot"), round_ - _DOT_RADIUS, strokes)
    ring = np.abs(round_ - _RING_RADIUS) - _STROKE
    return np.where(kind == MARKS.index("ring"), ring, strokes)


@lru_cache(maxsize=8)
def _pixel_centres(image_size: int) -> np.ndarray:
    centres = (np.arange(image_size, dtype=np.float32) + 0.5) * np.float32(UNITS / image_size)
    centres.flags.writeable = False
    return centres


def _window(centre: float, reach: float, image_size: int) -> slice:
    """The pixels within `reach` of `centre` on one axis."""
    scale = image_size / UNITS
    return slice(max(0, int((centre - reach) * scale) - 1), int((centre + reach) * scale) + 2)


def _blend(patch: np.ndarray, colour: np.ndarray, distance: np.ndarray, scale: float) -> None:
    """Blends `colour` into a view of the canvas where `distance` is negative."""
    # A straight edge covers about half a pixel minus the distance.
    cover = np.minimum(np.maximum(0.5 - distance * scale, 0.0), 1.0)
    patch += cover[:, :, None] * (colour - patch)


def _paint_object(canvas: np.ndarray, item: SceneObject, colour: np.ndarray) -> None:
    size = len(canvas)
    places = _pixel_centres(size)
    rows, columns = (_window(centre, item.side / 2, size) for centre in (item.y, item.x))
    x = (places[columns] - np.float32(item.x))[None, :]
    y = (places[rows] - np.float32(item.y))[:, None]
    distance = _shape_distance(item.shape, x, y, item.side / 2)
    _blend(canvas[rows, columns], colour, distance, size / UNITS)


def _paint_marks(canvas: np.ndarray, marks: tuple[Mark, ...], colours: np.ndarray) -> None:
    # Windows of one width, moved inwards at the edges, let one evaluation serve all marks.
    size = len(canvas)
    width = math.ceil(2 * MARK_RADIUS * size / UNITS) + 3
    centres = np.array([(mark.x, mark.y) for mark in marks], np.float32)
    starts = ((centres - MARK_RADIUS) * (size / UNITS)).astype(int) - 1
    starts = np.minimum(np.maximum(starts, 0), size - width)
    places = _pixel_centres(size)[starts[:, :, None] + np.arange(width)] - centres[:, :, None]
    distances = mark_distances(marks, places[:, 0, None, :], places[:, 1, :, None])
    for (left, top), colour, distance in zip(starts.tolist(), colours, distances, strict=True):
        patch = canvas[top : top + width, left : left + width]
        _blend(patch, colour, distance, size / UNITS)


def _ground(rng: np.random.Generator, image_size: int) -> np.ndarray:
    """A dim tinted background with a slight slope of brightness, `[size, size, 3]`."""
    tint = np.float32(rng.uniform(35.0, 85.0) + rng.uniform(-12.0, 12.0, 3))
    across, down = rng.uniform(-12.0, 12.0, 2)
    place = _pixel_centres(image_size) / np.float32(UNITS) - np.float32(0.5)
    shade = np.float32(across) * place[None, :] + np.float32(down) * place[:, None]
    return shade[:, :, None] + tint


def draw(
    objects: tuple[SceneObject, ...],
    marks: tuple[Mark, ...],
    rng: np.random.Generator,
    image_size: int,
) -> np.ndarray:
    """Draws a scene, uint8 `[image_size, image_size, 3]`."""
    canvas = _ground(rng, image_size)
    colours = np.array([COLOURS[thing.colour] for thing in (*marks, *objects)], np.float32)
    colours = colours.reshape(-1, 3) + np.float32(rng.uniform(-14.0, 14.0, (len(colours), 3)))
    if marks:
        _paint_marks(canvas, marks, colours[: len(marks)])
    for item, colour in zip(objects, colours[len(marks) :], strict=True):
        _paint_object(canvas, item, colour)
    # Uniform noise of 16 levels from raw bytes, much faster than normal noise.
    noise = np.frombuffer(rng.bytes(canvas.size), np.uint8) & 15
    canvas += noise.reshape(canvas.shape)
    canvas -= 7.0  # the noise's mean, minus the half that rounds to the nearest
    np.maximum(canvas, 0.0, out=canvas)
    return np.minimum(canvas, 255.0, out=canvas).astype(np.uint8)


# --- what is drawn, and its captions ---

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


def read(data_dir: Path | None, data: DataSet) -> tuple[tuple[Path, ...], Callable[[str], Split]]:
    """Returns no files, and a function that draws a split by name; `data.limit` draws fewer."""

    def draw_split(name: str) -> Split:
        count = min(COUNTS[name], data.limit or COUNTS[name])
        return load(name, seed=data.seed, count=count)

    return (), draw_split


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


def place_objects(
    rng: np.random.Generator, pairs: Sequence[tuple[str, str]]
) -> tuple[SceneObject, ...]:
    """Places one to three objects of different colours, with clear relations between them."""
    number = int(np.searchsorted(np.cumsum(OBJECT_SHARES)[:-1], rng.random(), side="right")) + 1
    chosen: list[tuple[str, str]] = []
    while len({colour for colour, _ in chosen}) < number:
        chosen = [pairs[k] for k in rng.integers(len(pairs), size=number)]
    sizes = [SIZES[k] for k in rng.integers(len(SIZES), size=number)]
    sides = [float(rng.uniform(*SIDES[size])) for size in sizes]
    while True:
        places = rng.random((number, 2)).tolist()
        centres = [
            tuple(_EDGE + side / 2 + share * (UNITS - side - 2 * _EDGE) for share in place)
            for place, side in zip(places, sides, strict=True)
        ]
        if _is_clear(centres, sides):
            there = zip(sizes, chosen, centres, sides, strict=True)
            return tuple(SceneObject(size, *pair, *at, side) for size, pair, at, side in there)


def _is_clear(centres: list[tuple[float, float]], sides: list[float]) -> bool:
    """Returns whether no boxes touch and each relation that captions name is clear."""
    for i, (x, y) in enumerate(centres):
        for j in range(i):
            reach = (sides[i] + sides[j]) / 2 + _GAP
            if max(abs(x - centres[j][0]), abs(y - centres[j][1])) < reach:
                return False
    row = sorted(centres)
    return all(
        abs(abs(next_x - x) - abs(next_y - y)) >= _CLEAR and next_x - x >= _STEP
        for (x, y), (next_x, next_y) in pairwise(row)
    )


def place_marks(rng: np.random.Generator, objects: tuple[SceneObject, ...]) -> tuple[Mark, ...]:
    """Places marks that touch neither boxes nor each other; fewer if space is short."""
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


def describe(objects: Sequence[SceneObject]) -> tuple[tuple[str, ...], tuple[Phrase, ...]]:
    """Writes the five captions of a scene, and each noun phrase of each with its box.

    A caption chains the objects from left to right through relations, within its frame: with one
    visible order, a captioner learns early to look for the next object.

    Args:
        objects: One to three, in any order, with clear relations.
    """
    there = sorted(objects, key=lambda item: item.x)
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
