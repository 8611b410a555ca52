"""Captions of annotation tools: Label Studio, CVAT, Datumaro, VIA; texts of boxes are left out."""

from __future__ import annotations

import re
import shlex
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from training.data.sources.caption_files.records import Record, Source, as_captions, known_split
from training.data.sources.caption_files.roles import is_caption, is_image_name
from training.data.sources.text_files import read_text

WHOLE = "the whole file"
OF_BOXES = "of single boxes or other parts of an image"
# Keys of the place of a box, polygon, mask or span of text, by tool.
_PLACES = ("x", "points", "bbox", "rle", "vertices", "start", "shape_attributes", "segmentation")
_PLACES += ("polygon", "boundingBox", "box", "coordinates", "keypoints")


def is_place(value: Any) -> bool:
    """Returns whether a value is an annotation of a part of an image."""
    return isinstance(value, dict) and not value.keys().isdisjoint(_PLACES)


def check_texts_of_boxes(source: Source, rows: Sequence[Mapping[str, Any]], key: str) -> None:
    """Checks that the texts under a key are not as many as the boxes of their images.

    Raises:
        DataError: They are, in each of the rows; Label Studio lists texts of single boxes so.
    """
    if "caption" in source.columns:
        return
    for boxes in {name for row in rows for name, v in row.items() if _boxes(v)}:
        counts = [(len(as_captions(r.get(key))), len(_boxes(r.get(boxes)))) for r in rows]
        if any(texts > 1 for texts, _ in counts) and all(t == b for t, b in counts):
            choice = shlex.quote(f"caption={key}")
            source.fail(
                WHOLE,
                f"each image has as many texts under {key!r} as boxes under {boxes!r}, so each "
                "text may be of a box; if they are captions of the whole image, choose them with "
                f"`--data.columns {choice}`",
            )


def _boxes(value: Any) -> list[Any]:
    return value if isinstance(value, list) and value and all(map(is_place, value)) else []


def read_label_studio(source: Source, tasks: list[Any]) -> Iterator[Record]:
    """Reads the tasks of Label Studio's JSON export: the texts of their annotations."""
    fields = {
        str(result.get("from_name"))
        for task in tasks
        for annotation in _dicts(task.get("annotations"))
        for result in _texts_of(annotation)
        if not _is_of_box(result, annotation)
    }
    told = [a for task in tasks for a in _dicts(task.get("annotations")) if [*_texts_of(a)]]
    if told and not fields:
        source.fail(WHOLE, f"all texts are {OF_BOXES} (perRegion), which are no captions of it")
    field = _one_field(source, sorted(fields), "text area")
    shown = tasks[0]["data"]
    named = [name for name, value in shown.items() if is_image_name(value)] or [*shown]
    image = source.columns.get("image", named)[0]
    for index, task in enumerate(tasks):
        place, texts = f"[{index}].annotations", []
        for annotation in _dicts(task.get("annotations")):
            if annotation.get("was_cancelled"):
                source.left_out["marked was_cancelled"] += 1
                continue
            for result in _texts_of(annotation):
                found = as_captions((result.get("value") or {}).get("text"))
                if _is_of_box(result, annotation):
                    source.left_out[OF_BOXES] += len(found)
                elif result.get("from_name") == field:
                    texts += found
        data = source.value(f"[{index}]", task, "data", dict)
        split = data.get("split")
        identifier = None if task.get("id") is None else str(task["id"])
        yield source.record(place, data.get(image), texts, split, identifier=identifier)


def _texts_of(annotation: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the results of an annotation that are texts."""
    return (r for r in _dicts(annotation.get("result")) if r.get("type") == "textarea")


def _is_of_box(result: Mapping[str, Any], annotation: Mapping[str, Any]) -> bool:
    """Tests if a text is one of a region, which has the same id."""
    others = [r for r in _dicts(annotation.get("result")) if is_place(r.get("value"))]
    regions = {r.get("id") for r in others} - {None}
    return is_place(result.get("value")) or result.get("id") in regions


def _dicts(value: Any) -> list[dict[str, Any]]:
    """The objects in a list; none of another value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _one_field(source: Source, fields: list[str], kind: str) -> str:
    """The field that holds captions, of an annotation tool's text fields."""
    if not fields:
        source.fail(WHOLE, f"no {kind} holds a text; write captions in one, then export again")
    if given := source.columns.get("caption"):
        if given[0] not in fields:
            why = f"`--data.columns caption={given[0]}`: no such {kind} holds a text"
            source.fail(WHOLE, f"{why}; there are {', '.join(map(repr, fields))}")
        return given[0]
    named = [field for field in fields if re.search("caption|description|text", field.lower())]
    if len(fields) > 1 and len(named) != 1:
        source.fail(
            WHOLE,
            f"the {kind}s {', '.join(map(repr, fields))} could each be the caption; choose with "
            f"`--data.columns {shlex.quote(f'caption={fields[0]}')}`",
        )
    if len(fields) > 1:
        source.note(f"caption is {named[0]!r}; not read: {', '.join(set(fields) - set(named))}")
    return named[0] if len(named) == 1 else fields[0]


def read_datumaro(source: Source, items: list[Any]) -> Iterator[Record]:
    """Reads CVAT's export in the form of Datumaro: captions, or text attributes of labels."""
    of_images = [[a for a in _dicts(item.get("annotations")) if not is_place(a)] for item in items]
    names = sorted({n for of in of_images for n, _ in attributes_of(of)})
    has_captions = any("caption" in a for of in of_images for a in of)
    field = None if has_captions else _one_field(source, names, "attribute of whole images")
    for index, (item, of_image) in enumerate(zip(items, of_images, strict=True)):
        boxes = [a for a in _dicts(item.get("annotations")) if is_place(a)]
        source.left_out[OF_BOXES] += sum(is_caption(name) for name, _ in attributes_of(boxes))
        if has_captions:
            texts = [a["caption"] for a in of_image if a.get("caption")]
        else:
            texts = [text for name, text in attributes_of(of_image) if name == field]
        image = item.get("image") or item.get("media") or {}
        name = image.get("path") or item.get("id")
        yield source.record(
            f"items[{index}]", name, texts, known_split((item.get("subset") or "").lower())
        )


def shapes_field(source: Source, annotations: list[Any]) -> str | None:
    """The attribute of boxes that holds captions, in CVAT's export to COCO; None without boxes."""
    shapes = [one for one in annotations if isinstance(one, dict) and "bbox" in one]
    names = sorted({name for name, _ in attributes_of(shapes)})
    named = [name for name in names if is_caption(name)]
    if not shapes:
        return None
    if named or (names and "caption" in source.columns):
        field = _one_field(source, names if "caption" in source.columns else named, "attribute")
        rest = [name for name in names if name != field]
        note = f"captions are the attribute {field!r} of boxes, wherever these are"
        source.note(note + (f"; not read: {', '.join(map(repr, rest))}" if rest else ""))
        return field
    why = "these are boxes without captions"
    if names:
        why += f", with the attributes {', '.join(names)}; if one of them is the caption of the "
        chosen = shlex.quote(f"caption={names[0]}")
        source.fail("annotations", f"{why}image, choose it: `--data.columns {chosen}`")
    why += "; COCO's captions are in captions_*.json: name it with `--data.captions`"
    source.fail("annotations[0]", why)


def attributes_of(annotations: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yields the attributes of annotations that are texts, with their names."""
    for annotation in annotations:
        found = annotation.get("attributes")
        for name, text in found.items() if isinstance(found, dict) else ():
            if isinstance(text, str) and text.strip():
                yield name, text


def read_cvat(source: Source) -> Iterator[Record]:
    """Reads "CVAT for images" (XML): the text attributes of an image's tags."""
    try:
        root = ElementTree.fromstring(read_text(source.path))
    except ElementTree.ParseError as error:
        source.fail(f"line {error.position[0]}", f"not XML ({error})")
    images = [image for image in root.iter("image") if image.get("name")]
    if not images:
        expected = 'expected <image name="..."> elements, as "CVAT for images" writes'
        source.fail(WHOLE, f"{expected}; of other XML, write a CSV image,caption")
    texts = [
        [(a.get("name") or "", a.text or "") for tag in image.iter("tag") for a in tag]
        for image in images
    ]
    names = sorted({name for pairs in texts for name, text in pairs if text.strip()})
    if boxes := sum(len(image) for image in images) - sum(len(list(i.iter("tag"))) for i in images):
        source.note(f"{boxes} shapes are not read, only tags of whole images")
    field = _one_field(source, names, "attribute of the images' tags")
    for number, (image, pairs) in enumerate(zip(images, texts, strict=True)):
        captions = [text for name, text in pairs if name == field]
        split = known_split((image.get("subset") or "").lower())
        place = f"image {image.get('id', number)}"
        yield source.record(place, image.get("name"), captions, split)
