"""Caption images: `sat-tf caption PHOTO.jpg FOLDER [--run-dir RUN]`.

With `--sentence "a dog runs"` it explains that sentence about one image, word by word.
"""

from __future__ import annotations

import contextlib
import csv
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro
from PIL import Image

from sat_tf.config import SearchFlags
from sat_tf.images.pillow import read_pixels
from sat_tf.inference import published
from sat_tf.inference.captioning import image_files, read_ahead, try_decode
from sat_tf.inference.confidence import remark
from sat_tf.inference.figures import PHOTOGRAPH, figure_paths, save_attention_figure
from sat_tf.inference.load import load
from sat_tf.inference.run_folder import RunFolder, data_of
from sat_tf.text.vocabulary import SPECIAL_TOKENS
from sat_tf.util.commands import (
    check_file,
    check_folder,
    exit_status,
    json_line,
    parse_flags,
    printable,
    text_table,
)
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import PositiveInt, check_fields
from sat_tf.util.files import write_atomically

if TYPE_CHECKING:
    from sat_tf.inference.captioning import TrainedCaptioner
    from sat_tf.inference.captions import Caption

COLUMNS = ("file", "caption", "confidence", "familiarity", "alternatives")
"""Columns of `--csv`; alternatives are a JSON list of captions, best first."""


@dataclass(frozen=True)
class Arguments:
    """Caption images and draw the attention of each word."""

    images: tyro.conf.Positional[tuple[Path, ...]]
    """Files (JPEG, PNG, GIF, BMP, WebP, TIFF, AVIF or HEIC), or folders with them at any depth."""
    run_dir: Path = Path(published.DEFAULT)
    """Run folder of `python -m training.train`, or a published captioner's folder or name; by
    default a pretrained captioner."""
    sentence: str | None = None
    """Explain this sentence about one image instead, word by word; "" takes the caption."""
    out: Path = Path("captions")
    """Folder of the attention figures."""
    figure: Literal["png", "jpg", "none"] | None = None
    """Form of the attention figures; `none` draws none. By default png; none with --csv or
    --write-txt."""
    figure_size: PositiveInt = 160
    """Side of a tile of the figures, pixels."""
    html: Path | None = None
    """File of a page with a viewer of all images; none is written by default."""
    csv: Path | None = None
    """File with a row for each image, written live: file, caption, confidence, familiarity,
    alternatives."""
    write_txt: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Write the caption of NAME.jpg to NAME.txt next to it, where the recipe `folder` reads it."""
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Replace files of --csv and --write-txt that exist."""
    search: Annotated[SearchFlags, tyro.conf.arg(name="")] = SearchFlags()
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print a line of JSON per image: caption, hypotheses, and maps in the viewer's form."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns 0 if every image was captioned, 1 if some were not."""
    return exit_status(lambda: run(parse_flags(Arguments, argv, "sat_tf.inference.caption")))


def run(arguments: Arguments) -> int:
    """Captions each image; reports and skips the unreadable ones."""
    images, figures = _check(arguments)
    captioner = load(arguments.run_dir)
    _note_on_words(arguments.run_dir, captioner)
    search = arguments.search.over(captioner.config.search)
    failed, entries = 0, []
    with _table(arguments.csv) as table:
        photos = read_ahead(images, try_decode)
        for path, figure, photo in zip(images, figures, photos, strict=True):
            if isinstance(photo, ValueError):
                print(printable(f"{path}: {photo}"), file=sys.stderr)
                failed += 1
                continue
            if arguments.sentence is None:
                caption = captioner.caption(photo, search)
            else:
                caption = captioner.explain(photo, arguments.sentence or None)
            if figure and not _draw(figure, captioner, photo, caption, arguments.figure_size):
                figure = None
            if arguments.html is not None:
                from sat_tf.inference.viewer import image_entry

                entries.append(image_entry(captioner, np.asarray(photo), caption, path.name))
            if table is not None:
                table.writerow(_row(path, caption))
            if arguments.write_txt:
                write_atomically(path.with_suffix(".txt"), caption.text + "\n")
            _print(path, figure, captioner, photo, caption, arguments.json)
    if arguments.html is not None:
        from sat_tf.inference.viewer import common_facts, report_page

        common = common_facts(captioner, arguments.run_dir.name)
        write_atomically(arguments.html, report_page("Captions", entries, common=common))
        print(f"Page: {arguments.html}", file=sys.stderr)
    if failed:
        print(f"{failed} of {len(images)} images could not be read.", file=sys.stderr)
    return 1 if failed else 0


def _check(arguments: Arguments) -> tuple[list[Path], list[Path] | list[None]]:
    """Checks the arguments; returns the image files, and the figures to draw of them."""
    if not arguments.images:
        raise ValueError("Received no value for argument `images`: name at least one file.")
    check_fields(arguments)
    check_fields(arguments.search)
    images, page, table = image_files(arguments.images), arguments.html, arguments.csv
    published.locate(arguments.run_dir)
    if not any(path.exists() for path in images):
        raise FileNotFoundError(f"There is no file {', '.join(map(str, images))}; check the path.")
    if arguments.sentence is not None and len(images) != 1:
        raise invalid_value("--sentence", "one image with it", f"{len(images)} images")
    if page is not None and page.suffix.lower() not in (".html", ".htm"):
        raise invalid_value("--html", "a file named *.html", str(page))
    for flag, path in (("--html", page), ("--csv", table)):
        if path is not None:
            check_file(flag, path)
    texts = [path.with_suffix(".txt") for path in images] if arguments.write_txt else []
    if len(set(texts)) < len(texts):
        (twice, _), *_ = Counter(texts).most_common(1)
        raise invalid_value("--write-txt", "images of different names", f"two for {twice}")
    there = [path for path in (table, *texts) if path is not None and path.exists()]
    if there and not arguments.overwrite:
        more = f" (of {len(there)} such files)" if len(there) > 1 else ""
        raise ValueError(f"{there[0]} exists{more}: choose another, or add `--overwrite`.")
    kind = arguments.figure or ("none" if table is not None or arguments.write_txt else "png")
    if kind == "none":
        return images, [None] * len(images)
    check_folder("--out", arguments.out)
    kind = kind if arguments.sentence is None else f"explained.{kind}"
    return images, figure_paths(arguments.out, images, kind)


def _note_on_words(run_dir: Path, captioner: TrainedCaptioner) -> None:
    """Prints which words a captioner knows if those are nothing but drawn scenes'."""
    if data_of(RunFolder(captioner.path).config).get("name") == "scenes":
        words = ", ".join(sorted(captioner.vocabulary.words[len(SPECIAL_TOKENS) :]))
        note = f"Note: {run_dir} learned from drawn scenes alone, and knows these words: {words}."
        print(printable(note), file=sys.stderr)


def _draw(
    figure: Path, captioner: TrainedCaptioner, photo: Image.Image, caption: Caption, size: int
) -> bool:
    """Draws the figure of a caption, or of an explanation; returns False if it cannot be drawn."""
    encoder = captioner.config.encoder
    side = max(encoder.image_size, min(PHOTOGRAPH, *photo.size))
    shown = read_pixels(photo, side, encoder.resize)
    chosen = None
    if captioner.config.attention.selection == "argmax" and caption.words:
        chosen = caption.alpha.reshape(len(caption.words), -1).argmax(-1)
    return save_attention_figure(figure, shown, caption.labelled(), cell=size, chosen=chosen)


def _print(
    path: Path,
    figure: Path | None,
    captioner: TrainedCaptioner,
    photo: Image.Image,
    caption: Caption,
    as_json: bool,
) -> None:
    """Prints a caption or an explanation, as a line of JSON if asked."""
    if as_json:
        from sat_tf.inference import viewer

        others = [{"caption": text, "score": score} for text, score in caption.alternatives]
        row = {"image": str(path), "caption": caption.text, "score": caption.score}
        row |= {"alternatives": others, "words": caption.words}
        row |= {"log_probs": caption.log_probs.tolist(), "figure": figure and str(figure)}
        known = {name: getattr(caption, name) for name in ("familiarity", "confidence")}
        row |= {name: value for name, value in known.items() if value is not None}
        row |= viewer.common_facts(captioner, captioner.path.name)
        print(json_line(row | viewer.caption_data(captioner, photo.size[::-1], caption)))
        return
    drawn = f", {figure}" if figure else ""
    print(printable(f"{path}: {caption.text}  ({caption.score:.2f}{drawn})"))
    if (unknown := getattr(caption, "unknown", None)) is not None:
        print(printable(text_table(caption.rows())))
        if unknown:
            print(printable(f"Not known, and read as <unk>: {', '.join(unknown)}."))
        else:
            print(f"log p of the whole: {caption.log_prob:.2f} nats, its end among them.")
    if said := remark(caption.familiarity, caption.confidence).sentence:
        print(printable(f"{path}: {said}"), file=sys.stderr)


@contextlib.contextmanager
def _table(path: Path | None) -> Iterator[Any]:
    """Yields a writer of rows, which are in the file at once; None without a file."""
    if path is None:
        yield None
        return
    with path.open("w", encoding="utf-8", newline="", buffering=1) as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        yield table


def _row(path: Path, caption: Caption) -> list[str]:
    """Returns the row of an image; what the captioner does not know is empty."""
    known = (caption.confidence, caption.familiarity)
    shares = ["" if share is None else f"{share:.4f}" for share in known]
    others = json.dumps([text for text, _ in caption.alternatives], ensure_ascii=False)
    return [str(path), caption.text, *shares, others]


if __name__ == "__main__":
    sys.exit(main())
