"""Captions from elsewhere: files of results, and the images of a split that they are of."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from sat_tf.images.pillow import decode, read_content
from training.data.examples import DataError, Example, Split, StoredImage

GROUNDING_KEY = "grounding"
"""Key of a row: the grounding of its image, see `training.evaluation.pointing.image_means`."""
_FORMS = 'write [{"image_id": NAME, "caption": TEXT}, ...], lines of such objects, or {NAME: TEXT}'


def parse_captions(content: bytes, path: Path) -> dict[str, str]:
    """Parses a JSON list of `{"image_id": ..., "caption": ...}`, COCO's format of results.

    It may also be lines of such objects, with `image` for the id as `training.caption --json`
    prints them, or an object with the captions by their images.

    Args:
        content: Content of the file. An id may be a number; other keys are ignored.
        path: Path of the file, for messages.

    Returns:
        Image id -> caption, in the order of the file.

    Raises:
        DataError: Another format, or an image with two captions.
    """
    try:
        rows = _json_values(content)
    except ValueError as error:
        raise DataError(f"{path} is not JSON: {error}; {_FORMS}.") from error
    if isinstance(rows, dict) and "caption" in rows and not {"image", "image_id"}.isdisjoint(rows):
        rows = [rows]
    elif isinstance(rows, dict) and all(isinstance(text, str) for text in rows.values()):
        rows = [{"image_id": name, "caption": text} for name, text in rows.items()]
    if not isinstance(rows, list):
        got = f"got a JSON {type(rows).__name__}"
        raise DataError(f"{path}: expected a list of captions, {got}; {_FORMS}.")
    captions: dict[str, str] = {}
    for number, row in enumerate(rows, start=1):
        where = f"{path}, caption {number}"
        image_id, caption = _fields(row, where)
        if image_id in captions:
            raise DataError(f"{where}: image {image_id!r} has one already.")
        captions[image_id] = caption
    return captions


def _json_values(content: bytes) -> Any:
    """The JSON value of a file, or a list of those of its lines."""
    try:
        return json.loads(content)
    except ValueError:
        lines = [line for line in content.splitlines() if line.strip()]
        if len(lines) < 2:
            raise
        return [json.loads(line) for line in lines]


def _fields(row: Any, where: str) -> tuple[str, str]:
    key = "image" if isinstance(row, dict) and "image_id" not in row else "image_id"
    if not isinstance(row, dict) or not {key, "caption"} <= set(row):
        raise DataError(f"{where}: expected an object with `image_id` and `caption`, got {row!r}.")
    image_id, caption = row[key], row["caption"]
    if isinstance(image_id, bool) or not isinstance(image_id, (int, str)):
        raise DataError(f"{where}: expected a text or a whole number as `image_id`: {image_id!r}.")
    if not isinstance(caption, str):
        raise DataError(f"{where}: expected a text as `caption`, got {caption!r}.")
    for name, text in (("image_id", str(image_id)), ("caption", caption)):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            said = f"half a character (a lone surrogate) in `{name}`, {text!r}"
            raise DataError(f"{where}: {said}.") from error
    return str(image_id), caption


def read_grounding(path: Path) -> dict[str, dict[str, float]]:
    """Reads image id -> grounding from the rows of `captions.json` that have it."""
    rows = json.loads(path.read_bytes())
    return {str(row["image_id"]): row[GROUNDING_KEY] for row in rows if GROUNDING_KEY in row}


def captions_of(
    split: Split, captions: Mapping[str, str], path: Path, others: Collection[str] = ()
) -> dict[str, str]:
    """Selects the caption of each example of a split, in its order.

    Captions of images that the data set skips, and of `others`, the names of other splits' images,
    are left out; an image that cannot be decoded needs none. If no name is that of an image, names
    may be ids of the caption file, as in COCO's results, names without suffix, or paths with one
    folder before all names.

    Raises:
        DataError: Images without a caption, captions of images the split does not have, or names
            that stand for different images in two of these readings.
    """
    known = [example.image_id for example in split.examples]
    named = {*known, *(image_id for image_id, _ in split.skipped)}
    if named.isdisjoint(captions):
        captions = _renamed(split, captions, named, {*named, *others}, path)
    captions = {name: text for name, text in captions.items() if name not in {*others} - named}
    unknown = [image_id for image_id in captions if image_id not in named]
    divided = " If a run made them, give the `held_out` of its config.json: `--data.held-out`."
    divided = "" if split.held_out is None else divided
    if unknown:
        raise DataError(
            f"{path}: {len(unknown)} of {len(captions)} captions are of no image of the "
            f"{split.name} split, such as {unknown[0]!r}; its images are called {known[0]!r}, ..."
            f"{divided}"
        )
    lacking = [example for example in split.examples if example.image_id not in captions]
    missing = [example.image_id for example in lacking if _can_be_read(example)]
    if missing := known if len(lacking) == len(known) else missing:
        raise DataError(
            f"{path}: {len(missing)} of {len(known)} images of the {split.name} split have no "
            f"caption, such as {missing[0]!r}.{divided}"
        )
    return {image_id: captions[image_id] for image_id in known if image_id in captions}


def _renamed(
    split: Split, captions: Mapping[str, str], named: set[str], known: set[str], path: Path
) -> Mapping[str, str]:
    """Reads names as ids, as names without suffix or as longer paths: one reading, or none."""
    stems = [str(PurePosixPath(name).with_suffix("")) for name in known]
    single = {stem for stem, count in Counter(stems).items() if count == 1}
    by_stem = {stem: n for stem, n in zip(stems, known, strict=True) if stem in single}
    readings = []
    for names in (split.identifiers, by_stem, _without_folder(captions, named)):
        found = {names.get(name, name): text for name, text in captions.items()}
        whole = len(found) == len(captions) and found.keys() <= known
        if whole and not named.isdisjoint(found) and found not in readings:
            readings.append(found)
    if len(readings) > 1:
        name = next(iter(captions))
        as_id, as_name = split.identifiers.get(name, name), by_stem.get(name, name)
        raise DataError(
            f"{path}: {name!r} can be the id of {as_id!r} or the name of {as_name!r}, as all its "
            f"names can. Write file names, such as {as_name!r}, as `image_id`."
        )
    return readings[0] if readings else captions


def _without_folder(captions: Mapping[str, str], named: set[str]) -> dict[str, str]:
    """Names without the folder that stands before the first one of an image of the split."""
    for path in captions:
        for start in range(1, path.count("/") + 1):
            folder = "/".join(path.split("/")[:start]) + "/"
            if path.removeprefix(folder) in named:
                return {name: name.removeprefix(folder) for name in captions}
    return {}


def _can_be_read(example: Example) -> bool:
    image = example.image
    if isinstance(image, np.ndarray):
        return True
    try:
        decode(read_content(image.read_bytes() if isinstance(image, StoredImage) else image))
    except ValueError:
        return False
    return True
