"""Caption images: `sat-tf caption PHOTO.jpg FOLDER [--run-dir RUN]`.

With `--sentence "a dog runs"` it explains that sentence about one image, word by word.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import numpy as np
import tyro
from PIL import Image

from sat_tf.config import Inference, SearchConfig, SearchFlags
from sat_tf.images.pillow import read_pixels
from sat_tf.inference import published
from sat_tf.inference.captioning import image_files, read_ahead, try_decode
from sat_tf.inference.confidence import remark
from sat_tf.inference.figures import PHOTOGRAPH, figure_paths, save_attention_figure
from sat_tf.inference.load import load
from sat_tf.inference.run_folder import RunFolder, data_of
from sat_tf.text.vocabulary import END, SPECIAL_TOKENS, START
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
    run_dir: Path = Path("flickr8k_soft")
    """Run folder of `python -m training.train`, or a published captioner's folder or name; by
    default a pretrained captioner."""
    sentence: str | None = None
    """Explain this sentence about one image instead, word by word; "" takes the caption."""
    out: Path = Path("captions")
    """Folder of the attention figures."""
    figure: Literal["png", "jpg", "webp", "none"] | None = None
    """Form of the attention figures: `webp` is an animation, word by word; `none` draws none. By
    default png; none with --csv or --write-txt."""
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
    inference: Inference | None = None
    """Choice of the location by hard attention, outlined in figures; the run's own by default."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print a line of JSON per image: caption, hypotheses, and maps in the viewer's form."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns 0 if every image was captioned, 1 if some were not."""
    return exit_status(lambda: run(parse_flags(Arguments, argv, "sat_tf.inference.caption")))


def run(arguments: Arguments) -> int:
    """Captions each image; reports and skips the unreadable ones."""
    images = _check(arguments)
    kind = arguments.figure
    if kind is None:
        kind = "none" if arguments.csv is not None or arguments.write_txt else "png"
    out, explained = None if kind == "none" else arguments.out, arguments.sentence is not None
    if out is not None:
        check_folder("--out", out)
    figures = figure_paths(out, images, f"explained.{kind}" if explained else kind)
    captioner = load(arguments.run_dir, "keras" if arguments.inference else None)
    _note_on_words(arguments.run_dir, captioner)
    if arguments.inference is not None:
        captioner.set_inference(arguments.inference)
    search = _search(arguments.search, captioner)
    failed, entries = 0, []
    with _csv(arguments.csv) as table:
        photos = read_ahead(images, try_decode)
        for path, figure, photo in zip(images, figures, photos, strict=True):
            if isinstance(photo, ValueError):
                print(printable(f"{path}: {photo}"), file=sys.stderr)
                failed += 1
                continue
            if explained:
                caption = captioner.explain(photo, arguments.sentence or None)
            else:
                caption = captioner.caption(photo, search)
            if figure is not None and not _draw(figure, captioner, photo, caption, arguments):
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


def _draw(
    figure: Path,
    captioner: TrainedCaptioner,
    photo: Image.Image,
    caption: Caption,
    arguments: Arguments,
) -> bool:
    """Draws the figure of a caption, or of an explanation; returns False if it cannot be drawn."""
    options: dict[str, Any] = {"cell": arguments.figure_size}
    if arguments.sentence is None:
        pixels = captioner.pixels(photo)
        options["chosen"] = chosen_locations(captioner, pixels, caption)
    else:
        caption = caption.labelled()
    encoder = captioner.config.encoder
    side = max(encoder.image_size, min(PHOTOGRAPH, *photo.size))
    shown = read_pixels(photo, side, encoder.resize)
    return save_attention_figure(figure, shown, caption, **options)


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


@contextmanager
def _csv(path: Path | None) -> Iterator[Any]:
    """Yields a writer of rows, which are in the file at once; None without a file."""
    if path is None:
        yield None
        return
    with path.open("w", encoding="utf-8", newline="", buffering=1) as file:
        table = csv.writer(_Flushed(file))
        table.writerow(COLUMNS)
        yield table


@dataclass(frozen=True)
class _Flushed:
    file: TextIO

    def write(self, text: str) -> None:
        self.file.write(text)
        self.file.flush()


def _row(path: Path, caption: Caption) -> list[str]:
    """Returns the row of an image; what the captioner does not know is empty."""
    known = (caption.confidence, caption.familiarity)
    shares = ["" if share is None else f"{share:.4f}" for share in known]
    others = json.dumps([text for text, _ in caption.alternatives], ensure_ascii=False)
    return [str(path), caption.text, *shares, others]


def chosen_locations(
    captioner: TrainedCaptioner, pixels: np.ndarray, caption: Caption
) -> np.ndarray | None:
    """Returns the location that hard attention chose for each word of a caption, int `[T]`.

    A drawn location is recovered from the log-probability: teacher forcing draws those of a search
    with a beam of 1 again.

    Args:
        captioner: The captioner that wrote the caption.
        pixels: Of the image, as the encoder sees it, `[S, S, 3]`.
        caption: Its caption.

    Returns:
        Indices of locations, row by row; None if none was chosen.
    """
    selection = captioner.config.attention.selection
    if caption.alpha is None or selection == "expectation" or not caption.words:
        return None
    if selection == "argmax":
        return caption.alpha.reshape(len(caption.words), -1).argmax(-1)
    import tensorflow as tf

    words = [captioner.vocabulary.id(word) for word in caption.words]
    annotations = captioner.annotate(pixels[np.newaxis])
    batch = {"annotations": annotations, "tokens": tf.constant([[START, *words, END]])}
    output = captioner.model(batch, seed=tf.zeros([2], tf.int32))
    log_alpha = tf.nn.log_softmax(output.alignment_scores)[0, : len(words)].numpy()
    drawn = output.log_prob[0, : len(words), tf.newaxis].numpy()
    return np.abs(log_alpha - drawn).argmin(-1)


def _note_on_words(run_dir: Path, captioner: TrainedCaptioner) -> None:
    """Prints which words a captioner knows if those are nothing but drawn scenes'."""
    if data_of(RunFolder(captioner.path).config).get("name") == "scenes":
        words = ", ".join(sorted(captioner.vocabulary.words[len(SPECIAL_TOKENS) :]))
        note = f"Note: {run_dir} learned from drawn scenes alone, and knows these words: {words}."
        print(printable(note), file=sys.stderr)


def _check(arguments: Arguments) -> list[Path]:
    """Checks the arguments; returns the image files."""
    if not arguments.images:
        raise ValueError("Received no value for argument `images`: name at least one file.")
    check_fields(arguments)
    check_fields(arguments.search)
    images = image_files(arguments.images)
    published.locate(arguments.run_dir)
    if not any(path.exists() for path in images):
        raise FileNotFoundError(f"There is no file {', '.join(map(str, images))}; check the path.")
    if arguments.sentence is not None and len(images) != 1:
        raise invalid_value("--sentence", "one image with it", f"{len(images)} images")
    if arguments.html is not None:
        if arguments.html.suffix.lower() not in (".html", ".htm"):
            raise invalid_value("--html", "a file named *.html", str(arguments.html))
        check_file("--html", arguments.html)
    written = [] if arguments.csv is None else [arguments.csv]
    if arguments.csv is not None:
        check_file("--csv", arguments.csv)
    if arguments.write_txt:
        texts = [path.with_suffix(".txt") for path in images]
        if len(set(texts)) < len(texts):
            (twice, _), *_ = Counter(texts).most_common(1)
            raise invalid_value("--write-txt", "images of different names", f"two for {twice}")
        written += texts
    there = [str(path) for path in written if path.exists()]
    if there and not arguments.overwrite:
        more = f" (of {len(there)} such files)" if len(there) > 1 else ""
        raise ValueError(f"{there[0]} exists{more}: choose another, or add `--overwrite`.")
    return images


def _search(given: SearchFlags, captioner: TrainedCaptioner) -> SearchConfig:
    """Returns the settings of the search; the beam is 1 if locations are drawn."""
    if captioner.config.attention.selection == "sample":
        if given.beam not in (None, 1):
            expected = "1 with `--inference sample`, given or the run's own, as each hypothesis "
            expected += "would draw its own locations"
            raise invalid_value("beam", expected, given.beam, flag="--beam")
        given = dataclasses.replace(given, beam=1)
    return given.over(captioner.config.search)


if __name__ == "__main__":
    sys.exit(main())
