"""A published digit model: a drawing in; its answer and glimpses out. No TensorFlow.

The model is a LiteRT graph that takes `images` float32 `[1, S, S, 1]`, white on black in [0, 1], to
`corners` `[1, T, 4, 2]`, `patches` `[1, T, h, w, scales]` and `probabilities` `[1, T, K]`: T looks
at the policy's mean locations, K classes.
"""

from __future__ import annotations

import hashlib
import io
import json
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from sat_tf.images.pillow import FORMATS, read_upright, to_rgb
from sat_tf.inference.unpacking import unpack_graph
from sat_tf.util.errors import RunError, installation, invalid_value
from sat_tf.util.fields import Positive, PositiveInt, check_argument, check_fields, from_dict
from sat_tf.util.files import json_object, read_content, write_all

MANIFEST, GRAPH, CARD = "digits.json", "graph.npz", "README.md"
"""Files of a published model: its facts, its graph (`sat_tf.inference.packing`), its card."""

MOST_SIDE = 2048
"""Largest side of a drawing, pixels."""

_FORMAT = 2
_LEAST_SIDE = 16
_INK = 64  # of 255; what is fainter does not count as ink
_ROOM = 28 / 20  # MNIST digits are 20 pixels long, in the middle of 28
_MARGIN = 4  # pixels, (28 - 20) / 2

Frame = tuple[float, float, float, float]
"""Left, top, right and bottom of the model's image, as shares of the drawing's sides."""

Drawing = str | Path | bytes | np.ndarray
"""Path of an image file, its bytes, or uint8 pixels `[H, W]` with ink 255."""


@dataclass(frozen=True)
class Facts:
    """Kind of a published model, and the look of its images."""

    system: Literal["ram", "dram", "stn"]
    """Kind of the model."""
    recipe: str
    """Recipe it was trained by."""
    answers: list[str]
    """Names of the classes."""
    digits: PositiveInt
    """Digits per image."""
    size: PositiveInt
    """Side of the square images, pixels."""
    ink_from: Positive
    """Length of the shortest digits of training, pixels."""
    ink_to: Positive
    """Length of the longest."""
    looks: PositiveInt
    """Looks per image."""
    side: PositiveInt
    """Side of a patch, values."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, eq=False)
class DigitReading:
    """A reading of one drawing, look by look.

    Attributes:
        answer: Name of the most probable class after the last look.
        probabilities: `[T, K]`, of each class after each of the T looks.
        corners: `[T, 4, 2]`, of the finest patch, (x, y) as shares of the image's sides.
        patches: `[T, h, w, scales]`, the finest first, in [0, 1].
        image: `[S, S]`, the model's image.
        frame: Place of the image in the drawing.
    """

    answer: str
    probabilities: np.ndarray
    corners: np.ndarray
    patches: np.ndarray
    image: np.ndarray
    frame: Frame


class DigitReader:
    """A digit model and the form of its images. Threads take turns.

    Args:
        facts: Of the model.
        graph: Bytes of its LiteRT graph.
        path: Folder it was loaded from, if any.

    Raises:
        ValueError: LiteRT is not installed, or cannot read the graph.
    """

    def __init__(self, facts: Facts, graph: bytes, path: Path | None = None) -> None:
        try:
            from ai_edge_litert.interpreter import Interpreter
        except ImportError as error:
            raise ValueError(f"Digit models need LiteRT: {installation('lite')}") from error
        self.facts, self.path = facts, path
        self._run = Interpreter(model_content=graph, num_threads=1).get_signature_runner()
        self._turn = threading.Lock()

    def read(self, drawing: Drawing) -> DigitReading:
        """Reads a drawing.

        Args:
            drawing: Image file, its bytes, or uint8 pixels `[H, W]` with ink 255.

        Raises:
            ValueError: It is missing or cannot be read, or there is no ink.
        """
        image, frame = self._fit(drawing)
        corners, patches, probabilities = self.look(image)
        answer = self.facts.answers[int(probabilities[-1].argmax())]
        return DigitReading(answer, probabilities, corners, patches, image, frame)

    def look(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns corners, patches and probabilities for an image, float32 `[S, S]` in [0, 1]."""
        with self._turn:
            found = self._run(images=image[np.newaxis, ..., np.newaxis])
        return tuple(found[name][0] for name in ("corners", "patches", "probabilities"))

    def _fit(self, drawing: Drawing) -> tuple[np.ndarray, Frame]:
        check_argument("drawing", drawing, Drawing)
        if isinstance(drawing, np.ndarray) and (drawing.ndim, drawing.dtype) != (2, np.uint8):
            got = f"{drawing.dtype} {list(drawing.shape)}"
            raise invalid_value("drawing", "uint8 pixels [H, W]", got)
        is_file = isinstance(drawing, str | Path)
        name = f"the drawing {str(drawing)!r}" if is_file else "the drawing"
        ink = (self.facts.ink_from, self.facts.ink_to)
        try:
            content = Path(drawing).read_bytes() if is_file else drawing
            pixels = decode_drawing(content) if isinstance(content, bytes) else content
            return fit_drawing(pixels, self.facts.size, ink, self.facts.digits)
        except OSError as error:
            raise ValueError(f"Cannot read {name}: {error.strerror or error}.") from error
        except ValueError as error:
            raise ValueError(f"Cannot read {name}: {error}.") from error


def load_reader(folder: Path) -> DigitReader:
    """Loads a published model.

    Raises:
        RunError: A file is missing, damaged or of another version.
    """
    facts, digest = read_manifest(folder)
    return DigitReader(facts, unpack_graph(packed_graph(folder, digest)), folder)


def packed_graph(folder: Path, digest: str) -> bytes:
    """Returns the packed graph of a published model, which has this SHA-256.

    Raises:
        RunError: It is missing or damaged.
    """
    path = folder / GRAPH
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(f"{folder} is incomplete: it has no {GRAPH}.") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise RunError(f"{path} is damaged or was changed: publish or download it again.")
    return content


def write_reader(folder: Path, facts: Facts, packed: bytes) -> None:
    """Writes a model's facts and its packed graph, the manifest last."""
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(packed).hexdigest()
    values = {"format": _FORMAT, "sha256": digest, **asdict(facts)}
    manifest = (json.dumps(values, indent=1) + "\n").encode()
    write_all({folder / GRAPH: packed, folder / MANIFEST: manifest})


def read_manifest(folder: Path) -> tuple[Facts, str]:
    """Reads the facts of a published model and the SHA-256 of its graph.

    Raises:
        RunError: The manifest is missing, damaged or of another version.
    """
    path = folder / MANIFEST
    try:
        values = json_object(read_content(path))
        version, digest = values.pop("format"), str(values.pop("sha256", None))
        if version != _FORMAT:
            raise ValueError(f"it has format {version}, this version reads {_FORMAT}")
        return from_dict(Facts, values), digest
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = str(error).rstrip(".")
        raise RunError(f"Cannot read {path}: {why}. Publish it again.") from error


def decode_drawing(content: bytes) -> np.ndarray:
    """Reads an image file, turned upright, as uint8 `[H, W]`: 255 is ink, dark or bright there.

    On a transparent ground, everything opaque is ink.

    Raises:
        ValueError: It cannot be read, or is too small or too large.
    """
    content = read_upright(content)  # its errors say what to do about the format
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            width, height = image.size
            fits = min(image.size) >= _LEAST_SIDE and max(image.size) <= MOST_SIDE
            ink = _ink_of(image) if fits else None
    except Exception as error:  # Pillow's readers raise almost anything on broken files
        raise ValueError("it cannot be read as an image") from error
    if ink is None:
        raise ValueError(
            f"it has {width} x {height} pixels, expected sides of {_LEAST_SIDE} to {MOST_SIDE}"
        )
    return ink


def _ink_of(image: Image.Image) -> np.ndarray:
    if image.has_transparency_data:
        opacity = np.asarray(image.convert("RGBA"))[..., 3]
        if np.median(_border(opacity)) == 0:
            return opacity
    ink = np.asarray(to_rgb(image).convert("L"))
    return 255 - ink if np.median(_border(ink)) > 127 else ink


def _border(pixels: np.ndarray) -> np.ndarray:
    return np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])


def fit_drawing(
    drawing: np.ndarray, size: int, ink: tuple[float, float], digits: int = 1
) -> tuple[np.ndarray, Frame]:
    """Scales and moves a drawing as little as makes it like the images of training.

    Args:
        drawing: uint8 `[H, W]`, 255 is ink.
        size: Side of the model's images, pixels.
        ink: Shortest and longest digits of training, pixels along the longer side.
        digits: Digits in the drawing, 1 or 2.

    Returns:
        The image, float32 `[size, size]` in [0, 1], and its frame.

    Raises:
        ValueError: There is no ink.
    """
    mask = drawing > _INK
    if not mask.any():
        raise ValueError("there is no ink in it")
    (top, bottom), (left, right) = _extent(mask.any(axis=1)), _extent(mask.any(axis=0))
    extent = np.array([right - left, bottom - top], np.float64)
    length = _digit_length(mask[top:bottom, left:right], digits)
    sides = np.array(drawing.shape[::-1], np.float64)
    scale = float(np.clip(size / sides.max(), ink[0] / length, ink[1] / length))
    scale = min(scale, (size - 2 * _MARGIN) / extent.max())
    if digits == 1:
        # Digits of MNIST are centred by mass.
        centre, room = _centre_of_mass(drawing), _ROOM * length * scale
    else:
        centre = np.array([left, top]) + extent / 2
        room = extent * scale + 2 * _MARGIN
    reach = np.maximum(size - room, 0.0) / 2
    middle = centre - np.clip((centre - sides / 2) * scale, -reach, reach) / scale
    corners = middle - size / scale / 2, middle + size / scale / 2
    image = _resized(drawing, *corners, size)
    return image, tuple(float(edge) for corner in corners for edge in corner / sides)


def _extent(used: np.ndarray) -> tuple[int, int]:
    places = np.flatnonzero(used)
    return int(places[0]), int(places[-1]) + 1


def _centre_of_mass(drawing: np.ndarray) -> np.ndarray:
    weights = drawing.astype(np.float64)
    y, x = (np.arange(side) + 0.5 for side in drawing.shape)
    return np.array([weights.sum(axis=0) @ x, weights.sum(axis=1) @ y]) / weights.sum()


def _digit_length(mask: np.ndarray, digits: int) -> int:
    """Longer side of the longest digit, pixels; the widest gap separates two digits."""
    if digits == 1:
        return max(mask.shape)
    gaps = [(*_widest_gap(mask.any(axis=1 - axis)), axis) for axis in (0, 1)]
    width, place, axis = max(gaps)
    if not width:
        return len(mask)  # they touch side by side, or one is missing
    parts = np.split(mask, [place], axis=axis)
    extents = [_extent(part.any(axis=along)) for part in parts for along in (0, 1)]
    return max(stop - start for start, stop in extents)


def _widest_gap(used: np.ndarray) -> tuple[int, int]:
    """Width of the longest run of unused places between used ones, and a place in it."""
    places = np.flatnonzero(used)
    steps = np.diff(places, prepend=places[0] - 1)
    if steps.max() == 1:
        return 0, 0
    return int(steps.max()) - 1, int(places[steps.argmax() - 1]) + 1


def _resized(drawing: np.ndarray, low: np.ndarray, high: np.ndarray, size: int) -> np.ndarray:
    """Resamples a part of a drawing, which may reach over its edges, to a square."""
    before = np.maximum(np.ceil(-low), 0).astype(int)
    after = np.maximum(np.ceil(high - drawing.shape[::-1]), 0).astype(int)
    padded = np.pad(drawing, [(before[1], after[1]), (before[0], after[0])])
    (left, top), (right, bottom) = low + before, high + before
    # Columns, then rows: which of them Pillow takes first depends on its version.
    kind, (height, _) = Image.Resampling.BILINEAR, padded.shape
    wide = Image.fromarray(padded).resize((size, height), kind, (left, 0, right, height))
    values = np.asarray(wide.resize((size, size), kind, (0, top, size, bottom)), np.float32)
    return values / max(values.max(), 1.0)
