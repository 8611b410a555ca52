"""A large folder of small images, and what it costs before the first step of training.

    python -m benchmarks.large_folder 118000

draws noise pictures of 3 kB and captions of drawn words in COCO's form, and trains on them with an
encoder that learns until the first step has run: new and resumed, beside a folder of 200 images.
"""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tyro
from PIL import Image

from benchmarks.measure import command

_LEARNING = (
    *("--encoder.name", "scenes_cnn", "--encoder.weights", "none"),
    *("--encoder.trainable", "True", "--encoder.image-size", "64"),
)


def draw(folder: Path, count: int) -> None:
    """Draws images, each of its own content, and five captions of each, of 20,000 words."""
    rng, numbers = np.random.default_rng(0), random.Random(0)
    (folder / "images").mkdir(parents=True)
    pictures = []
    for _ in range(200):
        coarse = Image.fromarray(rng.integers(0, 256, [8, 8, 3], np.uint8))
        file = io.BytesIO()
        coarse.resize((96, 96), Image.Resampling.BICUBIC).save(file, "JPEG", quality=80)
        pictures.append(file.getvalue())
    words = [f"w{n}" for n in range(20_000)]
    weights = [1 / (n + 5) for n in range(len(words))]
    images, captions = [], []
    for n in range(count):
        content, note = pictures[n % len(pictures)], str(n).encode()
        comment = b"\xff\xfe" + (len(note) + 2).to_bytes(2, "big") + note  # makes the bytes differ
        (folder / "images" / f"{n:012d}.jpg").write_bytes(content[:2] + comment + content[2:])
        images.append({"id": n, "file_name": f"{n:012d}.jpg"})
        for _ in range(5):
            text = " ".join(numbers.choices(words, weights, k=numbers.randint(7, 15)))
            captions.append({"id": len(captions), "image_id": n, "caption": text})
    content = json.dumps({"images": images, "annotations": captions})
    (folder / "captions.json").write_text(content)


def first_step(folder: Path, *flags: str) -> dict[str, float]:
    """Trains on a folder's data in a new process until the first step; see `loaded.first_step`.

    Returns:
        `processor_s` and `mb`.
    """
    called = [sys.executable, "-m", "benchmarks.loaded", "--recipe", "folder_soft", *flags]
    called += ["--data.image-dir", "images", "--data-dir", str(folder / "data")]
    called += ["--cache-dir", str(folder / "cache")]
    done = subprocess.run(called, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def run(images: tyro.conf.Positional[int] = 118_000) -> None:
    """Measures a large folder and a small one.

    Args:
        images: Images of the large one.
    """
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for count in (200, images):
            folder = Path(scratch) / str(count)
            draw(folder / "data", count)
            for name in ("new", "resumed"):
                found[name, count] = first_step(
                    folder, *_LEARNING, "--run-dir", str(folder / "run")
                )
    for name in ("new", "resumed"):
        large, small = found[name, images], found[name, 200]
        seconds, mb = large["processor_s"], large["mb"]
        print(
            f"{name}: {seconds:.1f} s of processor time and {mb:.0f} MB at the first step, "
            f"{seconds - small['processor_s']:.1f} s and {mb - small['mb']:.0f} MB beyond those "
            "of 200 images"
        )


if __name__ == "__main__":
    sys.exit(command(run))
