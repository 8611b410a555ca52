"""Caption pictures: `python -m training.caption --run-dir RUN photo.jpg`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from sat_tf.commands import exit_status, loading
from sat_tf.config import with_search
from sat_tf.ranges import Size, Weight, check_ranges


@dataclass(frozen=True)
class Arguments:
    """Caption pictures and draw where each word looked."""

    images: tyro.conf.Positional[tuple[Path, ...]]
    """Files: JPEG, PNG, GIF, BMP or WebP."""
    run_dir: Path
    """The run, as `python -m training.train` left it."""
    out: Path = Path("captions")
    """Where the attention pictures go."""
    beam: Size | None = None
    """Hypotheses kept; the run's own by default."""
    length_power: Weight | None = None
    """Scores are log p / length^p; the run's own by default."""
    as_json: bool = False
    """Print a line of JSON for each picture: caption, score, picture, other hypotheses."""


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns 0 when every picture was captioned, 1 when some were not."""
    return exit_status(
        lambda: run(tyro.cli(Arguments, args=argv, prog="python -m training.caption"))
    )


def run(arguments: Arguments) -> int:
    """Caption each picture; one that cannot be read is reported and passed over."""
    if not arguments.images:
        raise ValueError("Received no value for argument `images`: name at least one file.")
    check_ranges(arguments)
    with loading():
        import sat_tf.runs
        from sat_tf.pictures import picture_paths

    captioner = sat_tf.load(arguments.run_dir)
    search = with_search(
        captioner.config.search, beam=arguments.beam, length_power=arguments.length_power
    )
    arguments.out.mkdir(parents=True, exist_ok=True)
    failed, pictures = 0, picture_paths(arguments.out, arguments.images)
    for path, picture in zip(arguments.images, pictures, strict=True):
        try:
            content = path.read_bytes()
            pixels = captioner.pixels(content)
        except (OSError, ValueError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            failed += 1
            continue
        (caption,) = captioner.describe(captioner.annotate(pixels[None]), search)
        _draw(captioner, content, caption, picture)
        print(_printable(_line(path, caption, picture, arguments.as_json)))
    return 1 if failed else 0


def _draw(captioner, content: bytes, caption, path: Path) -> None:
    from PIL import Image

    from training.drawing import picture_of

    Image.fromarray(picture_of(captioner, content, caption)).save(path)


def _printable(text: str) -> str:
    """Bytes of a file's name that are no UTF-8 as escapes, which JSON reads back as they were."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _line(path: Path, caption, picture: Path, as_json: bool) -> str:
    if not as_json:
        return f"{path}: {caption.text}  ({caption.score:.2f}, {picture})"
    return json.dumps(
        {
            "image": str(path),
            "caption": caption.text,
            "score": caption.score,
            "picture": str(picture),
            "alternatives": [{"caption": t, "score": s} for t, s in caption.alternatives],
        },
        ensure_ascii=False,
    )


if __name__ == "__main__":
    sys.exit(main())
