#!/usr/bin/env bash
# tf.io.decode_png(channels=4) makes an opaque PNG of 1, 2 or 4 bits per sample nearly transparent.
#
# Seen with: TensorFlow 2.21.0.
# A good guess: a PNG without alpha gets an alpha of 255, as it does with 8 or 16 bits.
# What is seen: an alpha of 1, 3 or 15. The samples are scaled from 0..2^bits - 1 to 0..255, and
# the alpha that is filled in is not. A chunk tRNS gives true alpha at every depth.
# It matters to: whoever lays scans, line art and small palettes over a background: they vanish.
# What we do: sat_tf/images/decoding.py takes an alpha of 2^bits - 1 everywhere for opaque.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check tensorflow==2.21.0
TF_CPP_MIN_LOG_LEVEL=3 "$work/venv/bin/python" - <<'PY'
import struct
import zlib

import tensorflow as tf


def png(bits):
    """A white grey-scale PNG, 8 x 8, without alpha."""
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 8, 8, bits, 0, 0, 0, 0)
    rows = (b"\0" + b"\xff" * bits) * 8
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


print("TensorFlow", tf.__version__)
seen = {bits: tf.io.decode_png(png(bits), channels=4)[0, 0].numpy().tolist() for bits in (1, 2, 4, 8, 16)}
for bits, pixel in seen.items():
    print(f"white of {bits:2} bits: {pixel}")
assert seen == {bits: [255, 255, 255, min(2**bits - 1, 255)] for bits in seen}, "the behaviour has changed"
PY
