"""Caption photographs without TensorFlow: `python -m serving.litert FOLDER PHOTO ...`, or `load`.

`python -m serving.export_litert` writes the folder; `docs/edge.md` describes it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sat_tf.inference.confidence import remark
from sat_tf.inference.litert_captioner import LiteRTCaptioner, load
from sat_tf.util.commands import exit_status, printable, program

__all__ = ["LiteRTCaptioner", "load", "main"]


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns 0 if every image was captioned, 1 if some were not, or 2."""
    # argparse, since this module needs nothing but NumPy, Pillow and LiteRT.
    description = "Caption photographs with a LiteRT export, without TensorFlow."
    parser = argparse.ArgumentParser(program("serving.litert"), description=description)
    parser.add_argument("folder", type=Path, help="LiteRT export")
    parser.add_argument("images", type=Path, nargs="+", metavar="PHOTO", help="image files")
    parser.add_argument("--out", type=Path, help="folder of attention figures; none by default")
    parser.add_argument("--threads", type=int, default=1, help="threads of LiteRT; 1 by default")
    arguments = parser.parse_args(argv)
    return exit_status(lambda: run(arguments), (ValueError, OSError, ImportError))


def run(arguments: argparse.Namespace) -> int:
    """Captions each image; one that cannot be read is reported and skipped."""
    from sat_tf.images.pillow import read_pixels
    from sat_tf.inference.batch import read_ahead, try_decode
    from sat_tf.inference.figures import PHOTOGRAPH, figure_paths, save_attention_figure

    captioner = load(arguments.folder, arguments.threads)
    figures = figure_paths(arguments.out, arguments.images)
    failed, photos = 0, read_ahead(arguments.images, try_decode)
    for path, figure, photo in zip(arguments.images, figures, photos, strict=True):
        if isinstance(photo, ValueError):
            failed += 1
            print(printable(f"{path}: {photo}"), file=sys.stderr)
            continue
        caption = captioner.caption(photo)
        if figure is not None:
            pixels = read_pixels(photo, PHOTOGRAPH, captioner.settings.resize)
            save_attention_figure(figure, pixels, caption)
        print(printable(f"{path}: {caption.text}  ({caption.score:.2f})"), flush=True)
        if sentence := remark(caption.familiarity, caption.confidence).sentence:
            print(printable(f"{path}: {sentence}"), file=sys.stderr)
    if failed:
        print(f"{failed} of {len(arguments.images)} images could not be read.", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
