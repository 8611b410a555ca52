"""Page of images and captions: a folder that opens in any browser."""

from __future__ import annotations

import html
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from sat_tf.files import write_atomically

IMAGES = "images"
"""Name of the page's folder of images."""
PAGE = "index.html"
"""Name of the page itself."""
_STYLE = """
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff;
       font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; }
article { margin: 2.5rem 0; padding-top: 1rem; border-top: 1px solid #ddd; }
h2 { margin: 0; font-size: 1.25rem; }
.id { color: #767676; font-size: .85rem; overflow-wrap: anywhere; }
img { display: block; max-width: 100%; height: auto; margin: .75rem 0; }
ul { margin: .25rem 0; padding-left: 1.25rem; color: #444; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .2rem 1rem .2rem 0; text-align: left; border-bottom: 1px solid #eee; }
"""


@dataclass(frozen=True, eq=False)
class PageEntry:
    """One image of a page, uint8 `[H, W, 3]`, with its captions."""

    image_id: str
    captions: tuple[str, ...]
    image: np.ndarray


def write_page(
    directory: Path | str,
    title: str,
    entries: Iterable[PageEntry],
    notes: Iterable[str] = (),
    table: Iterable[Sequence[str]] = (),
) -> Path:
    """Writes `index.html`, whose path it returns, and `images/NNN.png`; all text is escaped.

    The page refers to its images by relative paths and to nothing else, so the folder can be moved
    or opened from disk. Images of an earlier, longer page are removed.

    Args:
        directory: Created if missing.
        title: Heading of the page.
        entries: Consumed one at a time, so that a generator keeps one image in memory.
        notes: Paragraphs under the heading.
        table: Rows under the notes, headings first.
    """
    directory = Path(directory)
    images = directory / IMAGES
    images.mkdir(parents=True, exist_ok=True)
    articles, written = [], set()
    for number, entry in enumerate(entries):
        name = f"{number:03d}.png"
        buffer = io.BytesIO()
        Image.fromarray(entry.image).save(buffer, format="PNG", optimize=True)
        write_atomically(images / name, buffer.getvalue())
        written.add(name)
        articles.append(_article(entry, name))
    paragraphs = "".join(f"<p>{html.escape(note)}</p>\n" for note in notes)
    heading = html.escape(title)
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{heading}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{heading}</h1>\n{paragraphs}{_table(table)}{''.join(articles)}</body>\n</html>\n"
    )
    write_atomically(directory / PAGE, page)
    for path in images.glob("*.png"):
        if path.stem.isdecimal() and path.name not in written:
            path.unlink()
    return directory / PAGE


def _table(rows: Iterable[Sequence[str]]) -> str:
    lines = []
    for row in rows:
        cell = "td" if lines else "th"
        cells = "".join(f"<{cell}>{html.escape(text)}</{cell}>" for text in row)
        lines.append(f"<tr>{cells}</tr>\n")
    return f"<table>\n{''.join(lines)}</table>\n" if lines else ""


def _article(entry: PageEntry, file: str) -> str:
    first, *others = map(html.escape, entry.captions)
    references = "".join(f"<li>{text}</li>\n" for text in others)
    return (
        f'<article>\n<div class="id">{html.escape(entry.image_id)}</div>\n<h2>{first}</h2>\n'
        f'<img src="{IMAGES}/{file}" alt="{first}" loading="lazy">\n'
        + (f"<ul>\n{references}</ul>\n" if others else "")
        + "</article>\n"
    )
