"""A page of a few images with their captions, on which a wrong pairing is seen at a glance."""

from __future__ import annotations

import html
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from sat_tf.images import pillow
from sat_tf.inference.figures import lettering_of
from sat_tf.inference.viewer import data_url
from sat_tf.util.files import write_atomically
from training.data.examples import Example, Split, StoredImage

IMAGES = 12
_SIDE = 360  # pixels
_TRIES = 3  # images to try instead of one that cannot be read
_STYLE = """
:root { color-scheme: light dark; }
body { max-width: 76rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(16rem, 1fr)); gap: 1.5rem; }
figure { margin: 0; overflow-wrap: anywhere; }
img { display: block; max-width: 100%; height: auto; }
code { font-size: .85rem; }
p, li { margin: .25rem 0; }
ul { padding-inline-start: 1.25rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { padding: .2rem 1rem .2rem 0; text-align: start; border-bottom: 1px solid #8886; }
"""


def write_contact_sheet(
    path: Path,
    split: Split,
    language: str = "",
    title: str = "Training images with their captions",
    notes: Iterable[str] = (),
    table: Iterable[Sequence[str]] = (),
) -> None:
    """Writes a page in one HTML file: images of a split, evenly spread over it, with captions.

    Under the heading are notes, a paragraph each, and rows of a table, headings first.
    """
    figures = "".join(_figure(*shown, language) for shown in _chosen(split))
    paragraphs = "".join(f"<p>{html.escape(note)}</p>\n" for note in notes)
    heading = html.escape(title)
    write_atomically(
        path,
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{heading}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{heading}</h1>\n{paragraphs}{_table(table)}<main>\n{figures}</main>\n</body>\n"
        "</html>\n",
    )


def _chosen(split: Split) -> Iterator[tuple[Image.Image, Example]]:
    """Yields examples with their images; the next one replaces an unreadable one."""
    places = np.linspace(0, len(split), min(IMAGES, len(split)), endpoint=False).astype(int)
    ends = [*places[1:], len(split)]
    for place, end in zip(places, ends, strict=True):
        for example in split.examples[place : min(end, place + _TRIES)]:
            image = example.image
            try:
                if isinstance(image, np.ndarray):
                    yield Image.fromarray(image), example
                else:
                    content = image.read_bytes() if isinstance(image, StoredImage) else image
                    yield pillow.decode(pillow.read_content(content)), example
            except (OSError, ValueError):
                continue
            break


def _figure(image: Image.Image, example: Example, language: str) -> str:
    image.thumbnail((_SIDE, _SIDE))
    content = io.BytesIO()
    image.convert("RGB").save(content, "JPEG", quality=88)
    captions = "".join(f"<li{_spoken(c, language)}>{html.escape(c)}</li>" for c in example.captions)
    name, alt = html.escape(example.image_id), html.escape(example.captions[0])
    return (
        f'<figure>\n<img src="{data_url(content.getvalue())}" alt="{alt}">\n'
        f"<figcaption><code>{name}</code>\n<ul>{captions}</ul></figcaption>\n</figure>\n"
    )


def _spoken(text: str, language: str) -> str:
    direction = "rtl" if lettering_of(text, language).right_to_left else "auto"
    return f' dir="{direction}"' + (f' lang="{html.escape(language)}"' if language else "")


def _table(rows: Iterable[Sequence[str]]) -> str:
    lines = []
    for row in rows:
        cell = "td" if lines else "th"
        cells = "".join(f"<{cell}>{html.escape(text)}</{cell}>" for text in row)
        lines.append(f"<tr>{cells}</tr>\n")
    return f"<table>\n{''.join(lines)}</table>\n" if lines else ""
