"""Captions from elsewhere, scored alone."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sat_tf.errors import invalid_value
from sat_tf.fields import to_dict
from sat_tf.files import write_json
from sat_tf.run_folder import RunFolder
from training.config import DataConfig
from training.data.examples import DataError, Split
from training.data.sources import load_split
from training.data.sources.caption_files import has_half_character
from training.evaluate.reports import (
    CAPTIONS_FILE,
    MARKDOWN_FILE,
    REPORT_FILE,
    caption_report,
    console_summary,
    write_report,
)
from training.metrics.bootstrap import intervals
from training.metrics.captions import score_captions
from training.metrics.scene_words import word_scores
from training.metrics.score_tokens import ScoreTokens


def evaluate_captions(
    path: Path,
    data: DataConfig,
    data_dir: Path | None = None,
    split_name: str = "dev",
    out: Path | None = None,
    score_tokens: ScoreTokens | None = None,
) -> dict[str, Any]:
    """Scores a file of captions on a split; prints the main scores, writes report and captions.

    The report has nothing that needs a model: no likelihood, attention or search.

    Args:
        path: JSON list of `image_id` and `caption`, one per image of the split.
        data: Data set: `name` and the keys that select its captions, as in training.
        data_dir: The user's copy of the data set; None for drawn ones.
        split_name: `train`, `dev` or `test`.
        out: Output folder; `evaluation/SPLIT` in a folder named like the file if None.
        score_tokens: Tokeniser of the scores; that of the language by default.

    Returns:
        The report.

    Raises:
        DataError: The file is invalid, or its images are not those of the split.
        ValueError: The report would replace the file, or that of a run: `out` is None and the
            folder named like the file is a run.
    """
    folder = RunFolder(path.with_suffix(""))
    if out is None and folder.config.exists():
        raise ValueError(
            f"`--captions {path}` needs a folder for the report, `--out`: {folder} is a run, whose "
            "own evaluation would be overwritten."
        )
    written = (CAPTIONS_FILE, REPORT_FILE, MARKDOWN_FILE)
    if out is not None and path.resolve() in [(out / name).resolve() for name in written]:
        expected = "a folder where the report does not replace the file of `--captions`"
        raise invalid_value("--out", expected, str(out))
    content = path.read_bytes()
    given = parse_captions(content, path)
    split = load_split(data, split_name, data_dir)
    captions = captions_of(split, given, path)
    print(f"Scoring {len(captions):,} captions ...", flush=True)
    start, references = time.monotonic(), split.references()
    found = score_captions(captions, references, tokens=score_tokens, **data.splitting)
    scores = dict(found.scores)
    if any(example.phrases for example in split.examples):
        scores |= word_scores(captions, split)
    seconds = {"caption metrics": time.monotonic() - start}
    report = caption_report(split, found, scores, intervals(found)) | {
        "captions": {"file": path.name, "sha256": hashlib.sha256(content).hexdigest()},
        "data": data.name,
        "configuration": {"data": to_dict(data)},
        "seconds": seconds,
    }
    out = out or folder.evaluation(split.name)
    write_report(out, report)
    rows = [{"image_id": image_id, "caption": text} for image_id, text in captions.items()]
    write_json(out / CAPTIONS_FILE, rows)
    heading = f"{path.name}: {data.name} {split.name}, {len(captions):,} images"
    print(console_summary(heading, report, captions, out))
    return report


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
        where = f"{path}, caption {number}"
        image_id, caption = _fields(row, where)
        if image_id in captions:
            raise DataError(f"{where}: image {image_id!r} has one already.")
        captions[image_id] = caption
    return captions


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


def captions_of(split: Split, captions: Mapping[str, str], path: Path) -> dict[str, str]:
    """Selects the caption of each example of a split, in its order.

    Captions of images that the data set skips are left out. Ids may be those of the caption file,
    as in COCO's results, if none is the name of an image.

    Raises:
        DataError: Images without a caption, or captions of images the split does not have.
    """
    skipped = {image_id for image_id, _ in split.skipped}
    known = [example.image_id for example in split.examples]
    named = skipped | set(known)
    if named.isdisjoint(captions):
        captions = {split.identifiers.get(name, name): text for name, text in captions.items()}
    unknown = [image_id for image_id in captions if image_id not in named]
    divided = " If a run made them, give the `held_out` of its config.json: `--data.held-out`."
    divided = "" if split.held_out is None else divided
    if unknown:
        raise DataError(
            f"{path}: {len(unknown)} of {len(captions)} captions are of no image of the "
            f"{split.name} split, such as {unknown[0]!r}; its images are called {known[0]!r}, ..."
            f"{divided}"
        )
    missing = [image_id for image_id in known if image_id not in captions]
    if missing:
        raise DataError(
            f"{path}: {len(missing)} of {len(known)} images of the {split.name} split have no "
            f"caption, such as {missing[0]!r}.{divided}"
        )
    return {image_id: captions[image_id] for image_id in known}
