"""Caption images: `python -m training.caption --run-dir RUN photo.jpg FOLDER`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from sat_tf import published
from sat_tf.commands import exit_status, json_line, loading, program
from sat_tf.config import Inference, SearchFlags
from sat_tf.errors import invalid_value
from sat_tf.fields import check_fields
from sat_tf.figures.attention import figure_paths
from sat_tf.files import write_atomically
from sat_tf.images import SUFFIXES
from training.cli import check_file, check_folder
from training.evaluate.given_captions import caption_fields

if TYPE_CHECKING:
    import numpy as np

    from sat_tf.captions import Caption
    from sat_tf.runs import TrainedCaptioner


@dataclass(frozen=True)
class Arguments:
    """Caption images and draw the attention of each word."""

    images: tyro.conf.Positional[tuple[Path, ...]]
    """Files (JPEG, PNG, GIF, BMP, WebP or TIFF), or folders of them."""
    run_dir: Path
    """Run folder of `python -m training.train`, or a published captioner's folder or name."""
    out: Path = Path("captions")
    """Folder of the attention figures."""
    figure: Literal["png", "svg", "none"] = "png"
    """Form of the attention figures; none are drawn with `none`."""
    html: Path | None = None
    """File of a page with a viewer of all images; none is written by default."""
    search: Annotated[SearchFlags, tyro.conf.arg(name="")] = SearchFlags()
    inference: Inference | None = None
    """Choice of the location by hard attention, outlined in figures; the run's own by default."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff, tyro.conf.arg(aliases=("--as-json",))] = (
        False
    )
    """Print a line of JSON per image: caption, hypotheses, and maps in the viewer's form."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns 0 if every image was captioned, 1 if some were not."""
    return exit_status(
        lambda: run(tyro.cli(Arguments, args=argv, prog=program("training.caption")))
    )


def run(arguments: Arguments) -> int:
    """Captions each image; reports and skips the unreadable ones."""
    images = _check(arguments)  # before TensorFlow, which takes seconds, is loaded
    out = None if arguments.figure == "none" else arguments.out
    figures = figure_paths(out, images, arguments.figure)
    with loading():
        from training.evaluate.page import chosen_locations, image_entry

    captioner = _load(arguments.run_dir)
    if arguments.inference is not None:
        captioner.set_inference(arguments.inference)
    beam = _beam(arguments.search.beam, captioner.model.selection)
    search = dataclasses.replace(arguments.search, beam=beam).over(captioner.config.search)
    failed, entries = 0, []
    for path, figure in zip(images, figures, strict=True):
        try:
            content = path.read_bytes()
            pixels = captioner.pixels(content)
        except (OSError, ValueError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            failed += 1
            continue
        annotations = captioner.annotate(pixels[None])
        (caption,) = captioner.describe(annotations, search)
        if figure is not None:
            chosen = chosen_locations(captioner, annotations, caption)
            _draw(captioner, content, caption, figure, chosen)
        if arguments.html is not None:
            entries.append(image_entry(captioner, _whole(content), caption, path.name))
        told = caption, path, figure
        print(_json(captioner, content, *told) if arguments.json else _line(*told))
    if arguments.html is not None:
        _write_page(arguments, captioner, entries)
    return 1 if failed else 0


def _load(run_dir: Path) -> TrainedCaptioner:
    """Loads a captioner; says which words it knows if that is nothing but drawn scenes'."""
    import sat_tf.runs
    from sat_tf.vocabulary import SPECIAL_TOKENS
    from training.config import read_run_config

    captioner = sat_tf.runs.load_captioner(run_dir)
    if read_run_config(captioner.path).data.name == "scenes":
        words = ", ".join(sorted(captioner.vocabulary.words[len(SPECIAL_TOKENS) :]))
        note = f"Note: {run_dir} learned from drawn scenes alone, and knows these words: {words}."
        print(note, file=sys.stderr)
    return captioner


def _check(arguments: Arguments) -> list[Path]:
    """Checks the arguments; returns the image files."""
    if not arguments.images:
        raise ValueError("Received no value for argument `images`: name at least one file.")
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


def image_files(paths: Iterable[Path]) -> list[Path]:
    """Replaces each folder by the image files in it, sorted by name.

    Raises:
        ValueError: A folder has none.
    """
    files = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        found = sorted(
            entry
            for entry in path.iterdir()
            if entry.suffix.lower() in SUFFIXES and not entry.name.startswith(".")
        )
        if not found:
            raise ValueError(f"The folder {path} has no images ({', '.join(SUFFIXES)}).")
        files += found
    return files


def _beam(given: int | None, selection: Inference) -> int | None:
    """Returns the beam width: 1 if locations are drawn, None for the run's own."""
    if selection != "sample":
        return given
    if given not in (None, 1):
        expected = "1 with `--inference sample`, given or the run's own, as each hypothesis would "
        raise invalid_value("beam", f"{expected}draw its own locations", given, flag="--beam")
    return 1


def _draw(
    captioner: TrainedCaptioner,
    content: bytes,
    caption: Caption,
    path: Path,
    chosen: np.ndarray | None,
) -> None:
    import numpy as np

    from sat_tf.figures.attention import attention_svg, save_figure
    from training.evaluate.page import figure_of

    if path.suffix == ".svg":
        pixels = np.round(captioner.pixels(content).numpy()).astype(np.uint8)
        maps = caption.alpha, caption.beta
        svg = attention_svg(pixels, caption.words, *maps, caption.text, chosen=chosen)
        write_atomically(path, svg)
    else:
        save_figure(figure_of(captioner, content, caption, chosen), path)


def _whole(content: bytes) -> np.ndarray:
    """The whole image, upright."""
    import tensorflow as tf

    from training.data.image_loader import read_image

    return read_image(content, tf.identity)[0]


def _write_page(
    arguments: Arguments, captioner: TrainedCaptioner, entries: list[dict[str, Any]]
) -> None:
    from sat_tf.viewer import report_page
    from training.evaluate.page import common_facts

    common = common_facts(captioner, arguments.run_dir.name)
    write_atomically(arguments.html, report_page("Captions", entries, common=common))
    print(f"Page: {arguments.html}", file=sys.stderr)


def _line(caption: Caption, path: Path, figure: Path | None) -> str:
    drawn = f", {figure}" if figure else ""
    return f"{path}: {caption.text}  ({caption.score:.2f}{drawn})"


def _json(
    captioner: TrainedCaptioner, content: bytes, caption: Caption, path: Path, figure: Path | None
) -> str:
    """The caption's fields, and the data that `sat_tf.viewer.report_page` makes a page of."""
    from training.evaluate.page import caption_data, common_facts

    words = {"words": caption.words, "log_probs": caption.log_probs.tolist()}
    row = {"image": str(path), **caption_fields(caption), **words}
    row |= {"figure": figure and str(figure), **common_facts(captioner, captioner.path.name)}
    row |= caption_data(captioner, _whole(content).shape[:2], caption)
    return json_line(row)


if __name__ == "__main__":
    sys.exit(main())
