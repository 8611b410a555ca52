"""Caption images: `python -m training.caption photo.jpg FOLDER [--run-dir RUN]`."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import tyro

from sat_tf.config import Inference, SearchConfig, SearchFlags
from sat_tf.images.pillow import read_pixels
from sat_tf.inference import load as runs
from sat_tf.inference import published
from sat_tf.inference.batch import image_files, read_ahead, try_decode
from sat_tf.inference.confidence import remark
from sat_tf.inference.figures import PHOTOGRAPH, figure_paths, save_attention_figure
from sat_tf.inference.run_folder import RunFolder, data_of
from sat_tf.text.vocabulary import END, SPECIAL_TOKENS, START
from sat_tf.util.commands import (
    check_file,
    check_folder,
    exit_status,
    json_line,
    parse_flags,
    printable,
)
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import PositiveInt, check_fields
from sat_tf.util.files import write_atomically

if TYPE_CHECKING:
    from sat_tf.inference.captioning import TrainedCaptioner
    from sat_tf.inference.captions import Caption


@dataclass(frozen=True)
class Arguments:
    """Caption images and draw the attention of each word."""

    images: tyro.conf.Positional[tuple[Path, ...]]
    """Files (JPEG, PNG, GIF, BMP, WebP, TIFF, AVIF or HEIC), or folders with them at any depth."""
    run_dir: Path = Path("flickr8k_soft")
    """Run folder of `python -m training.train`, or a published captioner's folder or name; by
    default a captioner that ships."""
    out: Path = Path("captions")
    """Folder of the attention figures."""
    figure: Literal["png", "jpg", "webp", "none"] = "png"
    """Form of the attention figures: `webp` is an animation, word by word; `none` draws none."""
    figure_size: PositiveInt = 160
    """Side of a tile of the figures, pixels."""
    html: Path | None = None
    """File of a page with a viewer of all images; none is written by default."""
    search: Annotated[SearchFlags, tyro.conf.arg(name="")] = SearchFlags()
    inference: Inference | None = None
    """Choice of the location by hard attention, outlined in figures; the run's own by default."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print a line of JSON per image: caption, hypotheses, and maps in the viewer's form."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns 0 if every image was captioned, 1 if some were not."""
    return exit_status(lambda: run(parse_flags(Arguments, argv, "training.caption")))


def run(arguments: Arguments) -> int:
    """Captions each image; reports and skips the unreadable ones."""
    images = _check(arguments)
    out = None if arguments.figure == "none" else arguments.out
    figures = figure_paths(out, images, arguments.figure)
    captioner = runs.load(arguments.run_dir)
    _note_on_words(arguments.run_dir, captioner)
    if arguments.inference is not None:
        captioner.set_inference(arguments.inference)
    search = _search(arguments.search, captioner)
    if arguments.json or arguments.html is not None:
        from sat_tf.inference import viewer
        from training.evaluation.report import caption_fields
    failed, entries = 0, []
    for path, figure, photo in zip(images, figures, read_ahead(images, try_decode), strict=True):
        if isinstance(photo, ValueError):
            print(printable(f"{path}: {photo}"), file=sys.stderr)
            failed += 1
            continue
        caption, whole = captioner.caption(photo, search), np.asarray(photo)
        if figure is not None:
            pixels = captioner.pixels(photo)
            chosen = chosen_locations(captioner, pixels, caption)
            options = {"chosen": chosen, "cell": arguments.figure_size}
            side = max(len(pixels), min(PHOTOGRAPH, *whole.shape[:2]))
            shown = read_pixels(photo, side, captioner.config.encoder.resize)
            drawn = save_attention_figure(figure, shown, caption, **options)
            figure = figure if drawn else None
        if arguments.html is not None:
            entries.append(viewer.image_entry(captioner, whole, caption, path.name))
        if arguments.json:
            words = {"words": caption.words, "log_probs": caption.log_probs.tolist()}
            row = {"image": str(path), **caption_fields(caption), **words}
            row |= {"figure": figure and str(figure)}
            row |= viewer.common_facts(captioner, captioner.path.name)
            print(json_line(row | viewer.caption_data(captioner, whole.shape[:2], caption)))
        else:
            drawn = f", {figure}" if figure else ""
            print(printable(f"{path}: {caption.text}  ({caption.score:.2f}{drawn})"))
            if sentence := remark(caption.familiarity, caption.confidence).sentence:
                print(printable(f"{path}: {sentence}"), file=sys.stderr)
    if arguments.html is not None:
        common = viewer.common_facts(captioner, arguments.run_dir.name)
        write_atomically(arguments.html, viewer.report_page("Captions", entries, common=common))
        print(f"Page: {arguments.html}", file=sys.stderr)
    if failed:
        print(f"{failed} of {len(images)} images could not be read.", file=sys.stderr)
    return 1 if failed else 0


def chosen_locations(
    captioner: TrainedCaptioner, pixels: np.ndarray, caption: Caption
) -> np.ndarray | None:
    """Returns the location that hard attention chose for each word of a caption, int `[T]`.

    A drawn location is recovered by its log-probability: teacher forcing draws those of a search
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
    if arguments.figure != "none":
        check_folder("--out", arguments.out)
    if arguments.html is not None:
        if arguments.html.suffix.lower() not in (".html", ".htm"):
            raise invalid_value("--html", "a file named *.html", str(arguments.html))
        check_file("--html", arguments.html)
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
