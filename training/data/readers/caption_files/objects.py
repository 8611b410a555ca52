"""Captions in JSON: records, mappings, COCO's, Karpathy's; and those of annotation tools."""

from __future__ import annotations

import json
import re
import shlex
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from training.data.examples import DataError
from training.data.readers.caption_files.columns import choose
from training.data.readers.caption_files.records import (
    Record,
    Source,
    are_words,
    as_captions,
    known_split,
)
from training.data.readers.caption_files.roles import is_caption, is_image_name, mostly
from training.data.readers.text_files import read_text

_WHOLE = "the whole file"
_OF_BOXES = "of single boxes or other parts of an image"
# Keys of the place of a box, polygon, mask or span of text, by tool.
_PLACES = ("x", "points", "bbox", "rle", "vertices", "start", "shape_attributes", "segmentation")
_PLACES += ("polygon", "boundingBox", "box", "coordinates", "keypoints")
_CHATS = ("messages", "contents", "conversations", "query")
_SHOWN = ("image", "url", "image_url", "uri", "fileUri")
_TAGGED = re.compile("<img>(.*?)</img>")
_VALUE = re.compile(r"\S")
_SAMPLE, _FEW = 1000, 5
_FORMS = (
    "expected a list of records with an image and its captions, a mapping of names to captions, "
    '{"images": [...], "annotations": [...]} (COCO), or the form of Karpathy'
)
Entries = list[tuple[str, Mapping[str, Any], str | None]]
"""Places, records and the split that a part of the file gives them."""


def read_jsonl(source: Source) -> Iterator[Record]:
    """Reads JSON lines, each a record with an image and its captions."""
    values = _values(source)
    if len(values) == 1 and isinstance(values[0][1], list) and _objects(values[0][1]):
        return _list(source, values[0][1], "")
    return _records_of(source, values)


def _records_of(source: Source, values: list[tuple[str, Any]]) -> Iterator[Record]:
    # ["a.jpg", "A door."]
    if all(isinstance(value, list) and len(value) > 1 for _, value in values):
        values = [(p, {str(n): cell for n, cell in enumerate(v, start=1)}) for p, v in values]
    for place, value in values:
        if not isinstance(value, dict):
            got = json.dumps(value)[:80]
            source.fail(place, f'expected {{"image": ..., "captions": [...]}}, got {got}')
    if all(len(value) == 1 and is_image_name(*value) for _, value in values):  # {"a.jpg": ...}
        return _table(source, [e for _, value in values for e in _mapped(source, value, None)])
    return _table(source, [(place, value, None) for place, value in values])


def _values(source: Source) -> list[tuple[str, Any]]:
    """The JSON values in a file, one on each line or written as they come, with their places."""
    text, position, line, found = read_text(source.path), 0, 1, []
    decoder = json.JSONDecoder()
    while start := _VALUE.search(text, position):
        line += text.count("\n", position, start.start())
        try:
            value, position = decoder.raw_decode(text, start.start())
        except json.JSONDecodeError as error:
            # A record that lacks its end is wrong in its own line, not in the next one's.
            ended = text[error.pos : error.pos + 1] in ("{", "")
            at = len(text[: error.pos].rstrip()) if ended else error.pos
            number, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
            source.fail(f"line {number}", f"not JSON ({error.msg}, column {column})")
        found.append((f"line {line}", value))
        line += text.count("\n", start.start(), position)
    return found


def read_json(source: Source) -> Iterator[Record]:
    """Reads one JSON value, whatever known form it has."""
    values = _values(source)
    if len(values) != 1:
        return _records_of(source, values)
    content = values[0][1]
    if isinstance(content, list):
        return _list(source, content, "")
    if not isinstance(content, dict) or not content:
        source.fail(_WHOLE, f"{_FORMS}, got {json.dumps(content)[:80]}")
    return _object(source, content)


def _object(source: Source, content: Mapping[str, Any]) -> Iterator[Record]:
    if any(map(is_image_name, content)):
        return _table(source, _mapped(source, content, None))
    if columns := _by_columns(source, content):
        return _list(source, columns, "")
    for key in ("images", "annotations", "captions", "data"):  # a mapping of names below a key
        if isinstance(content.get(key), dict) and content[key]:
            if all(map(is_image_name, content[key].values())):
                why = f"{key!r} has names of images, and no captions have the same keys"
                source.fail(_WHOLE, why)
            return _object(source, content[key])
    rows = content.get("rows")
    if isinstance(rows, list) and all(isinstance(r, dict) and "row" in r for r in rows):
        return _viewer(source, [source.value("rows", row, "row", dict) for row in rows])
    if "images" in content:
        images = source.value(_WHOLE, content, "images", list)
        captions = content.get("captions")
        if isinstance(captions, list) and captions and _objects(captions):
            content = {"annotations": captions, **content}
        if "annotations" in content or "info" in content:  # COCO's; of test only the images
            whole = {"annotations": [], **content}
            return _coco(source, images, source.value(_WHOLE, whole, "annotations", list))
        return _list(source, images, "images")
    if isinstance(content.get("items"), list) and "categories" in content:
        return _read_datumaro(source, content["items"])
    splits = {key: value for key, value in content.items() if known_split(key.lower()) and value}
    if splits and all(isinstance(value, (list, dict)) for value in splits.values()):
        return _parts(source, content, splits)
    lists = [key for key, v in content.items() if isinstance(v, list) and v and _objects(v)]
    if mostly(source.images.stems.__contains__, lists):
        return _table(source, _mapped(source, content, None))
    for key in ("data", "annotations", *lists[:1]):
        if key in lists:
            alike = [k for k in lists if content[k][0].keys() == content[key][0].keys()]
            if rest := [k for k in lists if k not in alike]:
                source.note(f"captions are those under {key!r}; not read: {', '.join(rest)}")
            if len(alike) == 1:
                return _list(source, content[key], key)
            source.note(f"the records under {', '.join(map(repr, alike))[:80]} are put together")
            return _table(
                source, [(f"{k}[{i}]", v, None) for k in alike for i, v in enumerate(content[k])]
            )
    return _below(source, content)


def _below(source: Source, content: Mapping[str, Any]) -> Iterator[Record]:
    """Reads a mapping of names, or the records deeper in one whose keys name no images."""
    counts = {key: _records_in(value) for key, value in content.items()}
    named = not source.images.stems.isdisjoint(content)
    if named or not any(counts.values()) or (len(content) > 1 and _objects([*content.values()])):
        return _table(source, _mapped(source, content, None))
    key = max(counts, key=counts.__getitem__)
    if rest := [other for other, count in counts.items() if count and other != key]:
        source.note(f"captions are those under {key!r}; not read: {', '.join(rest)[:80]}")
    inner = content[key]
    return _list(source, inner, key) if isinstance(inner, list) else _object(source, inner)


def _records_in(value: Any) -> int:
    """The most objects side by side in a value, at any depth."""
    inner = [*value.values()] if isinstance(value, dict) else value
    if not isinstance(inner, list):
        return 0
    return max([sum(isinstance(v, dict) for v in inner), *map(_records_in, inner)])


def _by_columns(source: Source, content: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Records of a table that is written by columns, as pandas does; None if it is none."""
    names, rows = content.get("columns"), content.get("data")
    if isinstance(names, list) and isinstance(rows, list) and not _objects(rows):
        of_lists = all(isinstance(row, list) for row in rows)
        if not of_lists or not all(isinstance(name, str) for name in names):
            source.fail(_WHOLE, f"{_FORMS}, got {json.dumps(content)[:80]}")
        return [dict(zip(names, row, strict=False)) for row in rows]
    columns = [dict(enumerate(v)) if isinstance(v, list) else v for v in content.values()]
    if not all(isinstance(column, dict) and column for column in columns):
        return None
    named = [all(map(is_image_name, islice(column.values(), _FEW))) for column in columns]
    if len(set(map(frozenset, columns))) > 1 or not any(named) or all(named):
        return None
    rows = ([column[key] for column in columns] for key in columns[0])
    return [dict(zip(content, row, strict=True)) for row in rows]


def _viewer(source: Source, rows: list[Mapping[str, Any]]) -> Iterator[Record]:
    """Reads a page of rows of Hugging Face's data viewer, if images are named in it."""
    if any(isinstance(value, dict) and "src" in value for row in rows for value in row.values()):
        source.fail(
            "rows",
            "a page of Hugging Face's data viewer, whose images are links that expire; download "
            "the data set's Parquet files instead, into this folder: `hf download OWNER/NAME "
            "--repo-type dataset --include '*.parquet' --local-dir .`",
        )
    return _list(source, rows, "rows")


def _objects(values: list[Any]) -> bool:
    return all(isinstance(value, dict) for value in values)


def _parts(source: Source, content: Mapping, splits: Mapping[str, Any]) -> Iterator[Record]:
    """Reads {"train": [...], "val": [...]}: lists or mappings, named by their splits."""
    if rest := [key for key in content if key not in splits and content[key]]:
        source.note(f"not read: {', '.join(map(repr, rest))}")
    entries: Entries = []
    for key, part in splits.items():
        if isinstance(part, dict):
            entries += _mapped(source, part, key)
            continue
        for index, entry in enumerate(part):
            place = f"{key}[{index}]"
            if not isinstance(entry, dict):
                source.fail(place, f"expected a record with an image and its captions, got {entry}")
            entries.append((place, entry, key))
    return _table(source, entries)


def _mapped(source: Source, content: Mapping[str, Any], split: str | None) -> Entries:
    """Records of a mapping from names to a caption, captions, or a record."""
    entries: Entries = []
    first, *others = (v for v in (*content.values(), {}) if isinstance(v, dict))
    if any(is_image_name(name) and name in other for name in first for other in others):
        keys = ", ".join(map(repr, content))[:80]
        source.note(f"images are under several keys ({keys}); their captions are put together")
    for name, value in content.items():
        place = f"the image {name!r}"
        if isinstance(value, dict) and value and all(map(is_image_name, value)):
            entries += _mapped(source, value, split)  # of a kind, such as a folder
        elif isinstance(value, dict):
            stems = source.images.stems if name not in source.images.stems else ()
            named = any(is_image_name(v) or (type(v) is str and v in stems) for v in value.values())
            flat: dict[str, Any] = {} if named else {"image": name}
            for key, inner in value.items():  # VIA has them in file_attributes
                flat |= inner if isinstance(inner, dict) else {key: inner}
            entries.append((place, flat, split))
        elif isinstance(value, (str, list)):
            entries.append((place, {"image": name, "captions": value}, split))
        else:
            source.fail(_WHOLE, f"{_FORMS}, got {json.dumps(content)[:80]}")
    return entries


def _list(source: Source, values: list[Any], key: str) -> Iterator[Record]:
    if not values or isinstance(values[0], (str, int, float)):
        source.fail(_WHOLE, f"{_FORMS}, got {json.dumps(values)[:80]}")
    if not _objects(values):
        return _records_of(source, [(f"{key}[{i}]", value) for i, value in enumerate(values)])
    if isinstance(values[0].get("data"), dict) and "annotations" in values[0]:
        return _read_label_studio(source, values)
    if values[0].get("type") == "header":  # phpMyAdmin
        tables = [part["data"] for part in values if isinstance(part.get("data"), list)]
        return _list(source, [row for rows in tables for row in rows], "data")
    if any("sentences" in value and "filename" in value for value in values):
        return _karpathy(source, values)
    if values and "caption_str" in values[0] and "reference_strs" in values[0]:
        # TextCaps: an entry per caption, each with all captions of its image beside it.
        kept = ("image_id", "caption_str", "set_name")
        values = [{k: value[k] for k in kept if k in value} for value in values]
    return _records_of(source, [(f"{key}[{i}]", value) for i, value in enumerate(values)])


def _table(source: Source, entries: Entries) -> Iterator[Record]:
    entries = [(place, _with_shown_image(source, place, e), part) for place, e, part in entries]
    return flat_records(source, entries, [entry for _, entry, _ in islice(entries, _SAMPLE)])


def flat_records(
    source: Source, entries: Entries, some: Sequence[Mapping[str, Any]] = ()
) -> Iterator[Record]:
    """Reads records whose keys are like the columns of a table, or those of objects in them.

    Of `some` of them, texts are checked to be no boxes'.
    """
    try:
        next(_rows(source.trial(), entries, ()), None)
    except DataError:
        entries = [(place, _unnested(entry), part) for place, entry, part in entries]
    return _rows(source, entries, some)


def _unnested(entry: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Lifts the values of nested objects, those alone in lists too, {"fields.caption": ...}.

    Lists of boxes, whose texts are not of the whole image, are left out.
    """
    found: dict[str, Any] = {}
    for key, value in entry.items():
        if isinstance(value, list) and any(map(_is_place, value)):
            continue
        while isinstance(value, list) and len(value) == 1 and isinstance(value[0], (dict, list)):
            value = value[0]
        deeper = isinstance(value, dict) and value
        found |= _unnested(value, f"{prefix}{key}.") if deeper else {f"{prefix}{key}": value}
    return found


def _rows(source: Source, entries: Entries, some: Sequence[Mapping[str, Any]]) -> Iterator[Record]:
    if not entries:
        return
    counted = Counter(key for _, entry, _ in islice(entries, _SAMPLE) for key in entry)
    names = list(counted)
    rows = [[entry.get(name) for name in names] for _, entry, _ in islice(entries, _SAMPLE)]
    chosen = choose(source, f"{entries[0][0]} and others", names, rows)
    _check_texts_of_boxes(source, some, names[chosen.captions[0]])
    for place, entry, part in entries:
        cells = chosen.cells(lambda i, entry=entry: entry.get(names[i]))
        for found, texts, split, group in cells:
            if found is None:
                keys = ", ".join(map(repr, entry))[:120]
                advice = "write the image's name into it, or leave it out"
                source.fail(place, f"no {names[chosen.image]!r} ({advice}); it has {keys}")
            if texts and source.marked(entry):  # by a key that the first records lack
                texts = []
            yield from source.records(place, found, texts, part if split is None else split, group)


def _with_shown_image(source: Source, place: str, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """A chat (OpenAI, Gemini, Qwen) with the image that it shows under a key of its own."""
    turns = [entry[key] for key in _CHATS if key in entry]
    names = [text for key, text in _leaves(turns) if key in _SHOWN and text]
    names += [name for _, text in _leaves(turns) for name in _TAGGED.findall(text)]
    if len(names) > 1:
        source.fail(place, f"{len(names)} images in one chat; keep one, with its caption")
    return {"image": names[0], **entry} if names else entry


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """The texts in a value, at any depth, with their keys."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, (dict, list)):
        for name, inner in value.items() if isinstance(value, dict) else ((key, v) for v in value):
            yield from _leaves(inner, name)


def _coco(source: Source, images: list[Any], annotations: list[Any]) -> Iterator[Record]:
    captions: dict[Any, list[Any]] = {}
    for index, image in enumerate(images):
        identifier = str(source.value(f"images[{index}]", image, "id", (int, str)))
        if identifier in captions:
            source.fail(f"images[{index}]", f"a second image with the id {image['id']!r}")
        captions[identifier] = []
    first = annotations[0] if annotations and isinstance(annotations[0], dict) else {}
    field = None if "caption" in first else _shapes_field(source, annotations)
    said = [key for key in first if is_caption(key)]
    key = said[0] if len(said) == 1 else "caption"
    words = are_words(a.get(key) for a in islice(annotations, _SAMPLE) if isinstance(a, dict))
    for index, annotation in enumerate(annotations):
        place = f"annotations[{index}]"
        identifier = str(source.value(place, annotation, "image_id", (int, str)))
        if identifier not in captions:
            source.fail(place, f"no image has the id {annotation['image_id']!r}")
        if field is not None:
            captions[identifier] += [text for n, text in _attributes_of([annotation]) if n == field]
        elif not source.marked(annotation):
            said = as_captions(source.value(place, annotation, key, (str, list)))
            captions[identifier] += [said] if words else said
    if images:
        names = ("file_name", "filename", "image", "path", "coco_url", "url")
        key = next((name for name in names if name in images[0]), "file_name")
    for index, image in enumerate(images):
        place = f"images[{index}]"
        name = source.value(place, image, key, str)
        split = image.get("split", image.get("data_split"))
        identifier, group = str(image["id"]), image.get("group")
        texts = captions[identifier]
        yield source.record(place, name, texts, split, group, identifier=identifier)


def _sentence(source: Source, place: str, sentence: Any) -> str | list[str]:
    """A sentence of Karpathy's form, or its words if that is all there is."""
    if isinstance(sentence, str):
        return sentence
    if isinstance(sentence, dict) and "raw" not in sentence and "tokens" in sentence:
        return source.value(place, sentence, "tokens", list)
    return source.value(place, sentence, "raw", str)


def _karpathy(source: Source, images: list[Any]) -> Iterator[Record]:
    for index, image in enumerate(images):
        place = f"images[{index}]"
        name = source.value(place, image, "filename", str)
        if image.get("filepath"):
            name = f"{source.value(place, image, 'filepath', str)}/{name}"
        captions = [
            _sentence(source, f"{place}.sentences[{number}]", sentence)
            for number, sentence in enumerate(source.value(place, image, "sentences", list))
        ]
        number = image.get("cocoid", image.get("imgid"))
        identifier = None if number is None else str(number)
        yield source.record(place, name, captions, image.get("split"), identifier=identifier)


def _is_place(value: Any) -> bool:
    """Returns whether a value is an annotation of a part of an image."""
    return isinstance(value, dict) and not value.keys().isdisjoint(_PLACES)


def _check_texts_of_boxes(source: Source, rows: Sequence[Mapping[str, Any]], key: str) -> None:
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
                _WHOLE,
                f"each image has as many texts under {key!r} as boxes under {boxes!r}, so each "
                "text may be of a box; if they are captions of the whole image, choose them with "
                f"`--data.columns {choice}`",
            )


def _boxes(value: Any) -> list[Any]:
    return value if isinstance(value, list) and value and all(map(_is_place, value)) else []


def _read_label_studio(source: Source, tasks: list[Any]) -> Iterator[Record]:
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
        source.fail(_WHOLE, f"all texts are {_OF_BOXES} (perRegion), which are no captions of it")
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
                    source.left_out[_OF_BOXES] += len(found)
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
    others = [r for r in _dicts(annotation.get("result")) if _is_place(r.get("value"))]
    regions = {r.get("id") for r in others} - {None}
    return _is_place(result.get("value")) or result.get("id") in regions


def _dicts(value: Any) -> list[dict[str, Any]]:
    """The objects in a list; none of another value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _one_field(source: Source, fields: list[str], kind: str) -> str:
    """The field that holds captions, of an annotation tool's text fields."""
    if not fields:
        source.fail(_WHOLE, f"no {kind} holds a text; write captions in one, then export again")
    if given := source.columns.get("caption"):
        if given[0] not in fields:
            why = f"`--data.columns caption={given[0]}`: no such {kind} holds a text"
            source.fail(_WHOLE, f"{why}; there are {', '.join(map(repr, fields))}")
        return given[0]
    if len(fields) == 1:
        return fields[0]
    named = [field for field in fields if re.search("caption|description|text", field.lower())]
    if len(named) != 1:
        source.fail(
            _WHOLE,
            f"the {kind}s {', '.join(map(repr, fields))} could each be the caption; choose with "
            f"`--data.columns {shlex.quote(f'caption={fields[0]}')}`",
        )
    source.note(f"caption is {named[0]!r}; not read: {', '.join(set(fields) - set(named))}")
    return named[0]


def _read_datumaro(source: Source, items: list[Any]) -> Iterator[Record]:
    """Reads CVAT's export in the form of Datumaro: captions, or text attributes of labels."""
    of_images = [[a for a in _dicts(item.get("annotations")) if not _is_place(a)] for item in items]
    names = sorted({n for of in of_images for n, _ in _attributes_of(of)})
    has_captions = any("caption" in a for of in of_images for a in of)
    field = None if has_captions else _one_field(source, names, "attribute of whole images")
    for index, (item, of_image) in enumerate(zip(items, of_images, strict=True)):
        boxes = [a for a in _dicts(item.get("annotations")) if _is_place(a)]
        source.left_out[_OF_BOXES] += sum(is_caption(name) for name, _ in _attributes_of(boxes))
        if has_captions:
            texts = [a["caption"] for a in of_image if a.get("caption")]
        else:
            texts = [text for name, text in _attributes_of(of_image) if name == field]
        image = item.get("image") or item.get("media") or {}
        name = image.get("path") or item.get("id")
        yield source.record(
            f"items[{index}]", name, texts, known_split((item.get("subset") or "").lower())
        )


def _shapes_field(source: Source, annotations: list[Any]) -> str | None:
    """The attribute of boxes that holds captions, in CVAT's export to COCO; None without boxes."""
    shapes = [one for one in annotations if isinstance(one, dict) and "bbox" in one]
    names = sorted({name for name, _ in _attributes_of(shapes)})
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


def _attributes_of(annotations: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
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
        source.fail(_WHOLE, f"{expected}; of other XML, write a CSV image,caption")
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
