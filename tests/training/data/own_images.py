"""Folders of images with the defects of real ones."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from tests.image_files import encode, exif_of

GERMAN = (
    "Ein großer Hund läuft, schnell",
    'Die Tür ist "offen"\nund rot',
    "Über\tden Straßen 🐕",
    "Ein Hund, ein Hund",
)
CHINESE = ("一只大狗在跑。", "红色的门开着", "街上有一只狗🐕", "狗和狗")
CORRUPT = b"\xff\xd8\xff no image"


def photograph(seed: int, grey: bool = False) -> Image.Image:
    """Soft patches of colour, 80 x 60; another seed looks quite different."""
    patches = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), np.uint8)
    image = Image.fromarray(patches).resize((80, 60), Image.Resampling.BICUBIC)
    return image.convert("L") if grey else image


def encoded(image: Image.Image, kind: str = "JPEG", turned: bool = False) -> bytes:
    """The content of a file; `turned` asks by EXIF for a turn clockwise."""
    return encode(image, kind, exif=exif_of(6 if turned else 1))


def write_files(folder: Path, files: dict[str, bytes | None]) -> None:
    """Writes files, in their sub-folders; None is a file that is missing."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is not None:
            path.write_bytes(content)


def write_csv(folder: Path, rows: Sequence[tuple[str, ...]], header: str) -> None:
    """A spreadsheet's CSV: a byte-order mark, Windows line ends, quotes around every field."""
    lines = [",".join(f'"{field.replace(chr(34), chr(34) * 2)}"' for field in row) for row in rows]
    (folder / "captions.csv").write_bytes("\r\n".join(["\ufeff" + header, *lines]).encode())


def write_jsonl(folder: Path, rows: Sequence[dict]) -> None:
    """An image a line, in the letters of its language."""
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    (folder / "captions.jsonl").write_text("".join(lines), "utf-8")
