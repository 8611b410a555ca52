"""`captions.json`: one caption per image, written by an evaluation or given by the user."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sat_tf.files import write_json
from training.data.examples import DataError, Split
from training.data.sources.caption_files import has_half_character

if TYPE_CHECKING:
    from sat_tf.runs import Caption

CAPTIONS_FILE = "captions.json"
GROUNDING_KEY = "grounding"
"""Key of a row: the grounding of its image, see `image_means`."""


def caption_fields(caption: Caption) -> dict[str, Any]:
    """Returns the caption, its score and the other hypotheses as JSON."""
    others = [{"caption": text, "score": score} for text, score in caption.alternatives]
    return {"caption": caption.text, "score": caption.score, "alternatives": others}


def write_captions(folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes `captions.json`: rows with `image_id`, `caption` and any other keys."""
    write_json(folder / CAPTIONS_FILE, list(rows))


def parse_captions(content: bytes, path: Path) -> dict[str, str]:
    """Parses a JSON list of `{"image_id": ..., "caption": ...}`, COCO's format of results.

    Args:
        content: Content of the file. An id may be a number; other keys are ignored.
        path: Path of the file, for messages.

    Returns:
        Image id -> caption, in the order of the file.

    Raises:
        DataError: Another format, or an image with two captions.
    """
    try:
        rows = json.loads(content)
    except ValueError as error:
        raise DataError(f"{path} is not JSON: {error}.") from error
    if not isinstance(rows, list):
        raise DataError(f"{path}: expected a list of captions, got a JSON {type(rows).__name__}.")
    captions: dict[str, str] = {}
    for number, row in enumerate(rows, start=1):
        image_id, caption = _fields(row, f"{path}, caption {number}")
        if image_id in captions:
            raise DataError(f"{path}, caption {number}: image {image_id!r} has one already.")
        captions[image_id] = caption
    return captions


def read_grounding(path: Path) -> dict[str, dict[str, float]]:
    """Reads image id -> grounding from the rows of `captions.json` that have it."""
    rows = json.loads(path.read_bytes())
    return {str(row["image_id"]): row[GROUNDING_KEY] for row in rows if GROUNDING_KEY in row}


def captions_of(split: Split, captions: Mapping[str, str], path: Path) -> dict[str, str]:
    """Selects the caption of each example of a split, in its order.

    Captions of images that the data set skips are left out.

    Raises:
        DataError: Images without a caption, or captions of images the split does not have.
    """
    skipped = {image_id for image_id, _ in split.skipped}
    known = [example.image_id for example in split.examples]
    unknown = [image_id for image_id in captions if image_id not in skipped | set(known)]
    if unknown:
        raise DataError(
            f"{path}: {len(unknown)} of {len(captions)} captions are of no image of the "
            f"{split.name} split, such as {unknown[0]!r}; its images are called {known[0]!r}, ..."
        )
    missing = [image_id for image_id in known if image_id not in captions]
    if missing:
        raise DataError(
            f"{path}: {len(missing)} of {len(known)} images of the {split.name} split have no "
            f"caption, such as {missing[0]!r}."
        )
    return {image_id: captions[image_id] for image_id in known}


def _fields(row: Any, where: str) -> tuple[str, str]:
    if not isinstance(row, dict) or not {"image_id", "caption"} <= set(row):
        raise DataError(f"{where}: expected an object with `image_id` and `caption`, got {row!r}.")
    image_id, caption = row["image_id"], row["caption"]
    if isinstance(image_id, bool) or not isinstance(image_id, (int, str)):
        raise DataError(f"{where}: expected a text or a whole number as `image_id`: {image_id!r}.")
    if not isinstance(caption, str):
        raise DataError(f"{where}: expected a text as `caption`, got {caption!r}.")
    for key, text in (("image_id", str(image_id)), ("caption", caption)):
        if has_half_character(text):
            raise DataError(f"{where}: half a character (a lone surrogate) in `{key}`, {text!r}.")
    return str(image_id), caption
