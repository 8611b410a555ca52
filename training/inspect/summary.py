"""A survey for people: a table and sentences on the console, and a page with a few images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sat_tf.config import EncoderConfig
from sat_tf.files import write_json
from training.inspect.image_scan import sample_images
from training.inspect.page import PageEntry, write_page
from training.inspect.survey import Survey
from training.tables import text_table

REPORT_FILE = "inspect.json"
_NAMED = 5  # skipped images per split, on the console


def table_of(report: dict[str, Any]) -> list[list[str]]:
    """One row per figure and one column per split; the first row is the splits' names."""
    splits = report["splits"]
    if not splits:
        return []
    rows = {
        "images listed": "listed",
        "used": "used",
        "without a file": "no_file",
        "without a caption": "no_captions",
        "unreadable": "unreadable",
        "turned upright (EXIF)": "rotated",
    }
    if "vocabulary" in report:
        unit = report["vocabulary"]["unit"]
        cut = report["configuration"]["data"]["max_length"]
        rows |= {
            "images also in an earlier split": "images_of_earlier_splits",
            "captions": "captions",
            "captions per image (min / median / max)": ("captions_per_image", "min median max"),
            f"{unit} per caption (median / 95 % / max)": ("length", "median p95 max"),
            f"captions cut to {cut} {unit}": "cut_share",
            "blank captions": "blank",
            "captions without a word": "without_words",
            f"unknown {unit}": "unknown_share",
            "captions also in an earlier split": "captions_of_earlier_splits",
        }
    cells = [
        [name, *(_cell(split, key) for split in splits.values())] for name, key in rows.items()
    ]
    return [["", *splits], *cells]


def _cell(split: dict[str, Any], key: str | tuple[str, str]) -> str:
    if isinstance(key, tuple):
        return " / ".join(f"{split[key[0]][name]:g}" for name in key[1].split())
    value = split[key]
    if value is None:
        return "-"
    return f"{value:.1%}" if isinstance(value, float) else str(value)


def sentences(report: dict[str, Any]) -> list[str]:
    """Vocabulary, time, warnings and errors."""
    found = []
    if "vocabulary" in report:
        words = report["vocabulary"]
        times = "once or more" if words["min_count"] == 1 else f"{words['min_count']} times or more"
        found.append(f"Vocabulary: {words['size']} {words['unit']} seen {times} in train.")
    found += _time(report.get("time"))
    found += [f"Warning: {warning}" for warning in report["warnings"]]
    found += [f"Error: {error}" for error in report["errors"]]
    if report["trainable"]:
        found.append("Ready to train.")
    return found


def show(report: dict[str, Any], out: Path) -> None:
    """Prints the report, with the first few of the skipped images by name."""
    if rows := table_of(report):
        print(text_table(rows))
    for name, reasons in report["skipped"].items():
        for image, reason in list(reasons.items())[:_NAMED]:
            print(f"Skipped in {name}: {image}: {reason}")
        if len(reasons) > _NAMED:
            print(f"Skipped in {name}: {len(reasons) - _NAMED} more, all in {out / REPORT_FILE}")
    for sentence in sentences(report):
        print(sentence)


def write(out: Path, found: Survey, config: EncoderConfig, images: int) -> Path:
    """Writes `inspect.json` and the page `index.html`; returns the page's path."""
    out.mkdir(parents=True, exist_ok=True)
    report = found.report
    write_json(out / REPORT_FILE, report)
    title = f"{report['recipe']}: {report['data']} before training"
    entries = _entries(found, config, images)
    return write_page(out, title, entries, sentences(report), table_of(report))


def _entries(found: Survey, config: EncoderConfig, count: int) -> Iterator[PageEntry]:
    if "train" not in found.splits:
        return
    split, scan = found.splits["train"], found.scans["train"]
    for example, pixels, rotated in sample_images(split, scan, config, count):
        note = " (turned upright)" if rotated else ""
        yield PageEntry(example.image_id + note, example.captions, pixels)


def _time(timed: dict[str, Any] | None) -> Iterator[str]:
    if timed is None:
        return
    yield (
        f"Time: about {_duration(timed['epoch_seconds'])} per epoch ({timed['steps']} steps of "
        f"{timed['step_seconds']:.2g} s), plus the captioning of dev."
    )
    if "store_seconds" in timed:
        yield (
            f"Before the first epoch, once: the encoder over train and dev, about "
            f"{_duration(timed['store_seconds'])} ({timed['images_per_second']:.3g} images/s, "
            f"{timed['store_bytes'] / 1e9:.2g} GB in the cache)."
        )


def _duration(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if seconds >= 90 else f"{seconds:.2g} s"
