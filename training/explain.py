"""Explain a sentence word by word: `python -m training.explain photo.jpg ["a dog runs"]`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from sat_tf.images.pillow import decode, read_content, read_pixels
from sat_tf.inference import load as runs
from sat_tf.inference import published
from sat_tf.inference.confidence import remark
from sat_tf.inference.figures import PHOTOGRAPH, figure_paths, save_attention_figure
from sat_tf.util.commands import check_folder, exit_status, parse_flags, printable
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import check_fields
from sat_tf.util.text_tables import text_table


@dataclass(frozen=True)
class Arguments:
    """Explain a caption, or a sentence of your own, word by word."""

    image: tyro.conf.Positional[Path]
    """File of the image."""
    sentence: tyro.conf.Positional[str | None] = None
    """A sentence about it; by default the captioner's own caption."""
    run_dir: Path = Path("flickr8k_soft")
    """Run folder of `python -m training.train`, or a published captioner's folder or name; by
    default a captioner that ships."""
    out: Path = Path("captions")
    """Folder of the figure."""
    figure: Literal["png", "jpg", "webp", "none"] = "png"
    """Form of the figure, of which each word has behind it what looking was worth, nats: `webp` is
    an animation; `none` draws none."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return exit_status(lambda: run(parse_flags(Arguments, argv, "training.explain")))


def run(arguments: Arguments) -> None:
    """Prints an explanation, and draws it."""
    path = arguments.image
    check_fields(arguments)
    published.locate(arguments.run_dir)
    if not path.is_file():
        raise invalid_value("image", "a file", f"{path}, which is none")
    if arguments.figure != "none":
        check_folder("--out", arguments.out)
    content = read_content(path)
    whole = np.asarray(decode(content))
    captioner = runs.load(arguments.run_dir)
    found = captioner.explain(content, arguments.sentence)
    figure = None
    if arguments.figure != "none":
        (figure,) = figure_paths(arguments.out, [path], arguments.figure)
        side = max(captioner.config.encoder.image_size, min(PHOTOGRAPH, *whole.shape[:2]))
        pixels = read_pixels(content, side, captioner.config.encoder.resize)
        drawn = save_attention_figure(figure, pixels, found.labelled())
        figure = figure if drawn else None
    print(printable(f"{path}: {found.text}\n{text_table(found.rows())}"))
    if found.unknown:
        print(printable(f"Not known, and read as <unk>: {', '.join(found.unknown)}."))
    else:
        print(f"log p of the whole: {found.log_prob:.2f} nats, its end among them.")
    if sentence := remark(found.familiarity).sentence:
        print(sentence)
    if figure:
        print(printable(f"Figure: {figure}"))


if __name__ == "__main__":
    sys.exit(main())
