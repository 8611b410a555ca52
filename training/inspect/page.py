"""A survey for people: a table and sentences on the console, and a page with a few images."""

from __future__ import annotations

import html
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from sat_tf.config import EncoderConfig
from sat_tf.inference.lettering import lettering_of
from sat_tf.inference.viewer import data_url
from sat_tf.util.commands import printable
from sat_tf.util.files import write_atomically, write_json
from sat_tf.util.text_tables import text_table
from training.data.contact_sheet import write_contact_sheet
from training.data.examples import Example, line_of

if TYPE_CHECKING:
    from training.inspect.survey import Survey

REPORT_FILE, CONTACT_SHEET = "inspect.json", "images.jpg"
_NAMED = 5  # skipped images per split, on the console
_SHOWN = 12  # images on the page
_STYLE = """
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff;
       font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; }
article { margin: 2.5rem 0; padding-top: 1rem; border-top: 1px solid #ddd; }
h2 { margin: 0; font-size: 1.25rem; }
.id { color: #767676; font-size: .85rem; overflow-wrap: anywhere; }
img { display: block; max-width: 100%; height: auto; margin: .75rem 0; }
ul { margin: .25rem 0; padding-inline-start: 1.25rem; color: #444; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .2rem 1rem .2rem 0; text-align: left; border-bottom: 1px solid #eee; }
"""


def show(report: dict[str, Any], out: Path) -> None:
    """Prints the report, with the first few of the skipped images by name."""
    if rows := table_of(report):
        print(text_table(rows))
    for name, reasons in report["skipped"].items():
        for image, reason in list(reasons.items())[:_NAMED]:
            print(printable(f"Skipped in {name}: {image}: {reason}"))
        if len(reasons) > _NAMED:
            print(f"Skipped in {name}: {len(reasons) - _NAMED} more, all in {out / REPORT_FILE}")
    for sentence in sentences(report):
        print(printable(sentence))


def write(out: Path, found: Survey, config: EncoderConfig) -> Path:
    """Writes `inspect.json` and the page `index.html`; returns the page's path."""
    out.mkdir(parents=True, exist_ok=True)
    report = found.report
    write_json(out / REPORT_FILE, report)
    title = f"{report['recipe']}: {report['data']} before training"
    entries = _entries(found, config)
    language = report["configuration"]["data"]["language"]
    page = page_of(title, entries, sentences(report), table_of(report), language)
    write_atomically(out / "index.html", page)
    if "train" in found.splits:
        write_contact_sheet(out / CONTACT_SHEET, found.splits["train"], language)
    return out / "index.html"


def _entries(found: Survey, config: EncoderConfig) -> Iterator[Example]:
    """Reads a few training images, evenly spread over the split, as the encoder sees them."""
    if "train" not in found.splits:
        return
    from training.data.image_loader import ImageLoader

    split, scan = found.splits["train"], found.scans["train"]
    usable = np.flatnonzero(scan.prints.readable)
    chosen = usable[np.linspace(0, len(usable) - 1, min(_SHOWN, len(usable))).round().astype(int)]
    examples = [split.examples[index] for index in chosen]
    loader = ImageLoader(examples, config.image_size, config.resize)
    batches = loader.batches(range(len(examples)), 1)
    for example, index, (pixels, _) in zip(examples, chosen, batches, strict=True):
        note = " (turned upright)" if int(index) in scan.rotated else ""
        image = np.round(pixels[0]).astype(np.uint8)
        yield Example(example.image_id + note, image, example.captions)


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
        "% of an image outside its square (median / max)": ("outside", "median max"),
        "nearly black": "dark",
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
            "captions that their image has already": "repeated",
            "images with a caption twice or more": "images_with_repeats",
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
    """Vocabulary, warnings and errors."""
    found = []
    if "vocabulary" in report:
        words = report["vocabulary"]
        times = "once or more" if words["min_count"] == 1 else f"{words['min_count']} times or more"
        kept = f", and {words['kept']:,} kept of `--init-from`" if words["kept"] else ""
        found.append(f"Vocabulary: {words['size']} {words['unit']} seen {times} in train{kept}.")
    found += map(line_of, report["notes"])
    found += [f"Warning: {warning}" for warning in report["warnings"]]
    found += [f"Error: {error}" for error in report["errors"]]
    if report["trainable"]:
        ready = "Ready to train." if report["weights"] else "The data is ready."
        found += [ready, f"Next: {report['next']}"]
    return found


def page_of(
    title: str,
    entries: Iterable[Example],
    notes: Iterable[str] = (),
    table: Iterable[Sequence[str]] = (),
    language: str = "",
) -> str:
    """Returns a page in one file, with its images in it; all text is escaped.

    Args:
        title: Heading of the page.
        entries: Images in memory, with their captions.
        notes: Paragraphs under the heading.
        table: Rows under the notes, headings first.
        language: Language code of the captions.
    """
    articles = "".join(_article(entry, language) for entry in entries)
    paragraphs = "".join(f"<p>{html.escape(note)}</p>\n" for note in notes)
    heading = html.escape(title)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{heading}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{heading}</h1>\n{paragraphs}{_table(table)}{articles}</body>\n</html>\n"
    )


def _table(rows: Iterable[Sequence[str]]) -> str:
    lines = []
    for row in rows:
        cell = "td" if lines else "th"
        cells = "".join(f"<{cell}>{html.escape(text)}</{cell}>" for text in row)
        lines.append(f"<tr>{cells}</tr>\n")
    return f"<table>\n{''.join(lines)}</table>\n" if lines else ""


def _article(entry: Example, language: str) -> str:
    def spoken(text: str) -> str:
        direction = "rtl" if lettering_of(text, language).right_to_left else "auto"
        return f'dir="{direction}" lang="{html.escape(language)}"'

    image = io.BytesIO()
    Image.fromarray(entry.image).save(image, format="PNG", optimize=True)
    first, *others = entry.captions
    shown = html.escape(first)
    references = "".join(f"<li {spoken(text)}>{html.escape(text)}</li>\n" for text in others)
    return (
        f'<article>\n<div class="id">{html.escape(entry.image_id)}</div>\n'
        f"<h2 {spoken(first)}>{shown}</h2>\n"
        f'<img src="{data_url(image.getvalue(), "image/png")}" alt="{shown}" {spoken(first)}>\n'
        + (f"<ul {spoken(' '.join(others))}>\n{references}</ul>\n" if others else "")
        + "</article>\n"
    )
