#!/usr/bin/env bash
# Saving an AVIF takes the orientation out of the caller's Exif object: the next file has no turn.
#
# Seen with: Pillow 13.0.0.
# A good guess: `image.save(path, exif=exif)` only reads `exif`, as it does for JPEG, PNG, WebP and
# TIFF, so one object serves several files of the same photograph.
# What is seen: after `save("photo.avif", exif=exif)` the tag 0x0112 is gone from `exif`. A JPEG that
# is saved with it before has orientation 6; one that is saved after, none: it is shown lying.
# It matters to: whoever writes AVIF and a fallback of a phone's photograph in one loop. The order of
# the formats decides whether the fallback is upright.
# What we do: write no AVIF; photographs that are turned are written without EXIF.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check pillow==13.0.0
"$work/venv/bin/python" - <<'PY'
import io

from PIL import Image

ORIENTATION = 0x0112
image, exif = Image.new("RGB", (64, 32)), Image.Exif()
exif[ORIENTATION] = 6


def saved(kind):
    stream = io.BytesIO()
    image.save(stream, kind, exif=exif)
    return Image.open(stream).getexif().get(ORIENTATION)


before = [saved(kind) for kind in ("JPEG", "PNG", "WEBP", "TIFF")]
avif = saved("AVIF")
after = [saved(kind) for kind in ("JPEG", "PNG", "WEBP", "TIFF")]
print("before:", before, "AVIF:", avif, "after:", after, "left in exif:", dict(exif))
assert before == [6, 6, 6, 6] and avif == 6, (before, avif)
assert after == [None] * 4 and ORIENTATION not in exif, after
PY
