#!/usr/bin/env bash
# A HEIC saved with an Exif object forgets its turn; with the same EXIF as bytes it keeps it.
#
# Seen with: pillow-heif 1.8.1, Pillow 13.0.0.
# A good guess: `image.save(path, exif=exif)` takes an `Image.Exif` and its bytes alike, as all
# formats of Pillow do.
# What is seen: of orientation 6 in bytes a file is made that opens turned; of the same tag in an
# `Image.Exif` one that opens as the pixels were given, with orientation 1.
# It matters to: whoever converts photographs to HEIC and hands `image.getexif()` over: those of a
# phone that was held upright come out lying, without an error.
# What we do: write no HEIC; the tests, which do, hand EXIF over as bytes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check pillow==13.0.0 pillow-heif==1.8.1
"$work/venv/bin/python" - <<'PY'
import io

import pillow_heif
from PIL import Image, ImageOps

pillow_heif.register_heif_opener()
image, exif = Image.new("RGB", (64, 32)), Image.Exif()
exif[0x0112] = 6


def upright(kind, value):
    stream = io.BytesIO()
    image.save(stream, kind, exif=value)
    return ImageOps.exif_transpose(Image.open(stream)).size


for kind in ("JPEG", "HEIF"):
    print(kind, "bytes:", upright(kind, exif.tobytes()), "Exif:", upright(kind, exif))
assert upright("JPEG", exif) == upright("JPEG", exif.tobytes()) == (32, 64)
assert upright("HEIF", exif.tobytes()) == (32, 64)
assert upright("HEIF", exif) == (64, 32)
PY
