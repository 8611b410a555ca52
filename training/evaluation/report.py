"""Files of an evaluation, `report.json` and `captions.json`; captions from elsewhere."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import math
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from sat_tf.images.pillow import decode, read_content
from sat_tf.util.commands import text_table
from sat_tf.util.files import write_json
from training.data.examples import DataError, Example, Split, StoredImage

if TYPE_CHECKING:
    from sat_tf.inference.captions import Caption

REPORT_FILE, CAPTIONS_FILE = "report.json", "captions.json"

GROUNDING_KEY = "grounding"
"""Key of a row: the grounding of its image, see `training.evaluation.pointing.image_means`."""

SIGNATURE = "Scores with another signature are not comparable: {}"
"""Sentence on what other scores have to share."""

HEADLINE = {
    "bleu_1": "words that are in a reference, %",
    "bleu_2": "the same, also of pairs of words",
    "bleu_3": "also of three in a row",
    "bleu_4": "also of four in a row",
    "meteor": "words matched also by stem and synonym",
    "rouge_l": "longest common sequence of words",
    "cider": "agreement, rare words count more",
    "perplexity": "equally likely next words: lower is better",
    "calibration_error": "distance of confidence from truth, points: lower is better",
    "captions_right": "every content word matches a reference, %",
    "confidence_error": "distance of the captions' confidence from truth, points",
    "pointing_game": "maps with their peak on the named object, %",
    "attention_correctness": "attention on the thing named, %",
    "nll_phrase_gain": "what looking is worth, nats per word",
    "deletion_fall": "fall of a word's log p without the tenth of the places most attended, nats",
    "deletion_ratio": "that fall over the one without random places",
}
"""Scores on the console, each with a description; the report has all."""

_PACKAGES = ("sat_tf", "tensorflow-cpu", "tensorflow", "keras", "tensorflow-probability")
_PACKAGES += ("numpy", "pillow")
_EXAMPLES = 3
_FORM = '[{"image_id": NAME, "caption": TEXT}, ...]'


def write_report(directory: Path | str, report: Mapping[str, Any]) -> None:
    """Writes `report.json`.

    Args:
        directory: Created if missing.
        report: Numbers, texts, lists and mappings by key; NumPy values, paths and named tuples
            become plain JSON, numbers that are not finite null. `scores` maps metric -> value,
            `intervals` (optional) metric -> `Interval`; `notes` is a list.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / REPORT_FILE, _plain(report))


def format_scores(scores: Mapping[str, float], intervals: Mapping[str, Any] | None = None) -> str:
    """Formats a table for the console."""
    return text_table(score_rows(scores, intervals or {}), (0, 2))


def write_evaluation(
    out: Path, heading: str, report: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Writes report and `rows` of captions; prints main scores, a few captions, notes and path."""
    write_report(out, report)
    write_json(out / CAPTIONS_FILE, rows)
    scores = {name: report["scores"][name] for name in HEADLINE if name in report["scores"]}
    lines = ["", heading, format_scores(scores, report["intervals"])]
    if bounds := report.get("bounds"):
        lines.append(f"Hard attention, {bounds['images']} images with one caption each, nats:")
        lines.append(format_scores({k: v for k, v in bounds.items() if isinstance(v, float)}))
    lines.append("First captions:")
    lines += [f"  {row['image_id']}: {row['caption']}" for row in rows[:_EXAMPLES]]
    lines += [f"Note: {note}" for note in report["notes"]]
    print(*lines, f"All {len(report['scores'])} scores: {out / REPORT_FILE}", sep="\n")


def package_versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that a result may depend on."""
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package.removesuffix("-cpu")] = importlib.metadata.version(package)
    return versions


def caption_rows(
    captions: Mapping[str, Caption], grounding: Mapping[str, Mapping[str, float]]
) -> list[dict[str, Any]]:
    """Returns the rows of `captions.json`: one per image, with its grounding if it has any."""
    rows = []
    for image_id, caption in captions.items():
        row = {"image_id": image_id, "caption": caption.text, "score": caption.score}
        row["alternatives"] = [{"caption": t, "score": s} for t, s in caption.alternatives]
        known = ("familiarity", "confidence")
        row |= {k: v for k in known if (v := getattr(caption, k)) is not None}
        rows.append(row | ({GROUNDING_KEY: grounding[image_id]} if image_id in grounding else {}))
    return rows


def number(score: str, value: float | None, sign: str = "") -> str:
    """Formats the value of a score; one that is None or not finite is "undefined".

    Gaps have four decimals, ratios and nats per word three, other scores two.
    """
    if value is None or not math.isfinite(value):
        return "undefined"
    decimals = 2
    if score.endswith("_gap"):
        decimals = 4
    elif score.endswith("_ratio") or score.startswith(("nll_phrase", "deletion")):
        decimals = 3
    return f"{value:{sign}.{decimals}f}"


def score_rows(scores: Mapping[str, Any], intervals: Mapping[str, Any]) -> list[list[str]]:
    """Formats name, score and interval; the third cells are left out if no interval is known."""
    rows = []
    for name, value in scores.items():
        numeric = value is None or isinstance(value, (int, float))
        rows.append([name, number(name, value) if numeric else value])
        if intervals:
            rows[-1].append(interval_text(name, intervals[name]) if intervals.get(name) else "")
    return rows


def interval_text(name: str, interval: Any) -> str:
    """Formats the ends of an interval, a tuple or the mapping in a report; empty if undefined."""
    low, high = [*(interval.values() if isinstance(interval, Mapping) else interval)][-2:]
    undefined = low is None or not math.isfinite(low)
    return "" if undefined else f"[{number(name, low)}, {number(name, high)}]"


def _plain(value: Any) -> Any:
    """Converts a value to JSON's types."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    elif hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return str(value)


def parse_captions(content: bytes, path: Path) -> dict[str, str]:
    """Parses a JSON list of `{"image_id": ..., "caption": ...}`, COCO's format of results.

    It may also be lines of such objects, with `image` for the id as `training.caption --json`
    prints them.

    Args:
        content: Content of the file. An id may be a number; other keys are ignored.
        path: Path of the file, for messages.

    Returns:
        Image id -> caption, in the order of the file.

    Raises:
        DataError: Another format, or an image with two captions.
    """
    try:
        try:
            rows = json.loads(content)
        except ValueError:
            rows = [json.loads(line) for line in content.splitlines() if line.strip()]
        rows = [rows] if isinstance(rows, dict) else rows  # a single line
    except ValueError as error:
        raise DataError(f"{path} is not JSON: {error}; write {_FORM}.") from error
    if not isinstance(rows, list):
        raise DataError(f"{path}: expected {_FORM}, got a JSON {type(rows).__name__}.")
    captions: dict[str, str] = {}
    for number, row in enumerate(rows, start=1):
        found = row if isinstance(row, dict) else {}
        image_id, caption = found.get("image_id", found.get("image")), found.get("caption")
        if not isinstance(image_id, int | str) or not isinstance(caption, str):
            raise DataError(f"{path}, caption {number}: expected {_FORM[1:-6]}, got {row!r}.")
        if str(image_id) in captions:
            raise DataError(f"{path}, caption {number}: image {image_id!r} has one already.")
        captions[str(image_id)] = caption
    return captions


def read_grounding(path: Path) -> dict[str, dict[str, float]]:
    """Reads image id -> grounding from the rows of `captions.json` that have it."""
    rows = json.loads(path.read_bytes())
    return {str(row["image_id"]): row[GROUNDING_KEY] for row in rows if GROUNDING_KEY in row}


def captions_of(split: Split, captions: Mapping[str, str], path: Path) -> dict[str, str]:
    """Selects the caption of each example of a split, in its order; leaves out all others.

    If no name is that of an image, names are ids of the caption file, as in COCO's results, or lack
    folder and suffix. An image that cannot be decoded needs no caption.

    Raises:
        DataError: Images without a caption, or a name that means two images.
    """
    known = [example.image_id for example in split.examples]
    if set(known).isdisjoint(captions):
        stems = {PurePath(name).stem: name for name in known}
        both = [name for name in captions if name in stems and name in split.identifiers]
        for name in both:
            if stems[name] != split.identifiers[name]:
                two = f"of {split.identifiers[name]} and the name of {stems[name]}"
                way = f"write names in full, such as {stems[name]!r}"
                raise DataError(f"{path}: {name!r} is the number {two}; {way}.")
        full = stems | dict(split.identifiers)
        captions = {full.get(name, name): text for name, text in captions.items()}
    lacking = [example for example in split.examples if example.image_id not in captions]
    missing = known if len(lacking) == len(known) else [e.image_id for e in lacking if _decodes(e)]
    if missing:
        divided = " If a run made them, give the `held_out` of its config.json: `--data.held-out`."
        raise DataError(
            f"{path}: {len(missing)} of {len(known)} images of the {split.name} split have no "
            f"caption, such as {missing[0]!r}; the file names {', '.join(list(captions)[:3])}."
            f"{'' if split.held_out is None else divided}"
        )
    return {image_id: captions[image_id] for image_id in known if image_id in captions}


def _decodes(example: Example) -> bool:
    image = example.image
    if isinstance(image, np.ndarray):
        return True
    try:
        decode(read_content(image.read_bytes() if isinstance(image, StoredImage) else image))
    except ValueError:
        return False
    return True
