"""Readers of boxes: Flickr30k Entities, COCO's instances, JSON lines.

Three layouts are read:

    Flickr30k Entities' folder
        Sentences/NAME.txt      a caption per line, [/EN#ID/TYPE/TYPE the phrase] in it
        Annotations/NAME.xml    boxes in pixels, each of one or several IDs, and the image's size
        The image is NAME.jpg, or else the only one whose file name is NAME up to its first `_`.
    JSON lines, gzip or not, one phrase per line
        image      NAME.jpg
        caption    number among the captions of the image, from 0, empty ones not counted; or null
        phrase     as written
        span       [a, b) over the blank-separated tokens of that caption, or null
        type       list of types, or none
        boxes      list of [x0, y0, x1, y1], shares of the image's sides
        size       [width, height] of the image that boxes were drawn on, pixels; or none
    COCO's instances (`instances_*.json`)
        categories with boxes in pixels; each occurrence of a category's name in a caption of the
        image, singular or with an s, is a phrase

References:
    Plummer et al. (2015), "Flickr30k Entities", arXiv:1505.04870; Lin et al. (2014), "Microsoft
    COCO", arXiv:1405.0312.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import xml.etree.ElementTree as ElementTree
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sat_tf.tokens import tokenize
from training.data.examples import Box, DataError

OUTSIDE = "boxes outside the image, or without an area"

_PART = re.compile("'?[^']+")
_PHRASE = re.compile(r"\[/EN#(?P<entity>[^/\s]+)(?P<types>(?:/[^\s\]/]+)*) (?P<words>[^\]]*)\]")
_TOLERANCE = 0.01  # of a side: boxes drawn by hand end a pixel outside now and then


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
        size: Width and height of the image that boxes were drawn on, pixels; None if not known.
    """

    image: str
    caption: int | None
    text: str
    span: tuple[int, int] | None
    types: tuple[str, ...]
    boxes: tuple[Box, ...]
    sentence: tuple[str, ...] | None = None
    size: tuple[float, float] | None = None


def skipped_note(dropped: Mapping[str, int]) -> str:
    """Returns `; skipped: boxes outside ... (3), phrases ... (2)`; nothing if none was dropped."""
    counts = ", ".join(f"{reason} ({count:,})" for reason, count in dropped.items())
    return f"; skipped: {counts}" if counts else ""


def read_boxes(path: str | Path) -> tuple[dict[str, list[BoxedPhrase]], Counter[str]]:
    """Reads a folder of Flickr30k Entities, a file of JSON lines, or COCO's instances (`.json`).

    Phrases none of whose boxes lies in the image are left out and counted.

    Args:
        path: The folder, or the file.

    Returns:
        Image -> its phrases; and reason -> how often something was left out for it.

    Raises:
        DataError: There is neither, it has another layout, or it holds no boxes.
    """
    path, dropped = Path(path), Counter()
    if not path.exists():
        raise DataError(f"There is no file or folder of boxes {path}.")
    read = _entities if path.is_dir() else _instances if path.suffix == ".json" else _json_lines
    phrases: dict[str, list[BoxedPhrase]] = {}
    for phrase, boxes in read(path):
        inside = tuple(box for box in map(_inside, boxes) if box is not None)
        dropped[OUTSIDE] += len(boxes) - len(inside)
        if inside:
            whole = BoxedPhrase(**phrase, boxes=inside)
            phrases.setdefault(whole.image, []).append(whole)
    if not phrases:
        shares = "JSON lines have boxes as shares of the image's sides, from 0 to 1."
        hint = f" {shares}" if dropped and read is _json_lines else ""
        raise DataError(
            f"{path} holds no phrase with a box in the image{skipped_note(+dropped)}.{hint}"
        )
    return phrases, +dropped


def _inside(box: Sequence[float]) -> Box | None:
    """`(top, left, bottom, right)` within the image, of `[x0, y0, x1, y1]`."""
    left, top, right, bottom = (float(edge) for edge in box)
    if min(left, top) < -_TOLERANCE or max(right, bottom) > 1.0 + _TOLERANCE:
        return None
    left, top, right, bottom = (min(max(edge, 0.0), 1.0) for edge in (left, top, right, bottom))
    return (top, left, bottom, right) if top < bottom and left < right else None


def _json_lines(path: Path) -> Iterator[tuple[dict, list]]:
    for number, line in _numbered_lines(path):
        if not line.strip():
            continue
        try:
            yield _boxed_phrase(json.loads(line))
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            raise DataError(
                f"{path}, line {number}: expected a phrase with its boxes ({error}), got "
                f"{line[:80]!r}."
            ) from error


def _numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    compressed = path.open("rb").read(2) == b"\x1f\x8b"
    try:
        with (gzip.open if compressed else open)(path, "rt", encoding="utf-8-sig") as file:
            yield from enumerate(file, 1)
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: expected JSON lines in UTF-8, gzip or not; the file is damaged or something "
            f"else ({error})."
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


def _size(width: float, height: float) -> tuple[float, float]:
    size = float(width), float(height)
    if not 0 < min(size) <= max(size) < math.inf:
        raise ValueError("a size is not two positive numbers")
    return size


def _instances(path: Path) -> Iterator[tuple[dict, list]]:
    found: dict[tuple[int, int], list[list[float]]] = {}
    try:
        values = json.loads(path.read_text("utf-8"))
        names = {int(one["id"]): str(one["name"]) for one in values["categories"]}
        images = {int(one["id"]): one for one in values["images"]}
        for one in values["annotations"]:
            image = images[int(one["image_id"])]
            width, height = _size(image["width"], image["height"])
            x, y, w, h = (float(edge) for edge in one["bbox"])
            right, bottom = round(x + w, 6), round(y + h, 6)  # 0.1 + 0.2 is 0.3
            box = [x / width, y / height, right / width, bottom / height]
            found.setdefault((int(one["image_id"]), int(one["category_id"])), []).append(box)
        for (number, category), boxes in found.items():
            image, name = images[number], names[category]
            phrase = {"image": str(image["file_name"]), "text": name, "types": (name,)}
            phrase |= {"caption": None, "span": None}
            phrase["size"] = _size(image["width"], image["height"])
            yield phrase, boxes
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}: expected instances of COCO, as one JSON value ({error}). The name of a file "
            "of JSON lines must not end in .json; call it .jsonl."
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError) as error:
        raise DataError(f"{path}: expected instances of COCO ({error!r}).") from error


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
        for number, line in enumerate(_sentences(written)):
            for phrase in _sentence_phrases(line):
                if found := boxes.get(phrase.pop("entity")):
                    of_image = {"image": f"{path.stem}.jpg", "caption": number, "size": size}
                    yield of_image | phrase, found


def _sentences(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected sentences in UTF-8 ({error}).") from error


def _entity_boxes(path: Path) -> tuple[dict[str, list[list[float]]], tuple[float, float]]:
    """Entity -> boxes `[x0, y0, x1, y1]`, shares of the sides; and these in pixels."""
    try:
        root = ElementTree.parse(path).getroot()
        width, height = _size(*(root.findtext(f"size/{side}", "") for side in ("width", "height")))
        boxes: dict[str, list[list[float]]] = {}
        for item in root.iter("object"):
            for box in item.iter("bndbox"):
                edges = [float(box.findtext(e, "")) for e in ("xmin", "ymin", "xmax", "ymax")]
                shares = [
                    edge / side for edge, side in zip(edges, [width, height] * 2, strict=True)
                ]
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
        end = match.end()
        phrase = {
            "text": match["words"],
            "span": (start, len(sentence)),
            "entity": match["entity"],
            "types": tuple(match["types"].split("/")[1:]),
        }
        phrases.append(phrase)
    sentence += split_words(line[end:])
    return [phrase | {"sentence": tuple(sentence)} for phrase in phrases]


def split_words(text: str) -> list[str]:
    """Splits a text into the words of `tokenize`, clitics apart: "man's" is "man 's"."""
    return [part for word in tokenize(text) for part in _PART.findall(word)]
