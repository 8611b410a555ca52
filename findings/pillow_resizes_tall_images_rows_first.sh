#!/usr/bin/env bash
# Pillow 13 resizes the rows of a tall image before its columns, earlier versions always columns first.
#
# Seen with: Pillow 12.2.0, 13.0.0.
# A good guess: an enlargement or reduction is the same bytes in every version, as no filter changed.
# What is seen: each of the two passes rounds to bytes, so of an image three times as tall as wide
# some bytes differ by one between the versions; those of a wide image do not.
# It matters to: models and tests that compare pixels to the bit, and ports to other languages.
# What we do: digits/reader.py resizes in two calls, columns and then rows, equal in all versions
# and to digits/page/drawing.js.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for version in 12.2.0 13.0.0; do
  python3 -m venv "$work/$version"
  "$work/$version/bin/pip" install -q --disable-pip-version-check "pillow==$version"
  "$work/$version/bin/python" - <<'PY'
import random

import PIL
from PIL import Image

kind, side = Image.Resampling.BILINEAR, 20
random.seed(0)


def same(width, height):
    image = Image.frombytes("L", (width, height), random.randbytes(width * height))
    at_once = image.resize((side, side), kind)
    columns_first = image.resize((side, height), kind).resize((side, side), kind)
    return at_once.tobytes() == columns_first.tobytes()


tall, wide = same(40, 120), same(120, 40)
print(f"Pillow {PIL.__version__}: columns first: tall {tall}, wide {wide}")
assert (tall, wide) == (PIL.__version__ == "12.2.0", True)
PY
done
