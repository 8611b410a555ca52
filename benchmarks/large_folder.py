"""A large folder of small images, and what it costs before the first step of training.

    python -m benchmarks.large_folder 118000

draws noise pictures of 3 kB and captions of drawn words in COCO's form, and trains on them with an
encoder that learns until the first step has run: new and resumed, beside a folder of 200 images.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

FLAGS = (
    *("--recipe", "folder_soft", "--data.image-dir", "images"),
    *("--encoder.name", "scenes_cnn", "--encoder.weights", "none"),
    *("--encoder.trainable", "True", "--encoder.image-size", "64"),
)


def draw(folder: Path, count: int) -> None:
    """Draws images, each of its own content, and five captions of each."""
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


def first_step(argv: list[str]) -> None:
    """Trains until the first step has run, prints what it took and stops like a killed process."""
    import keras

    from training import train

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
            used = resource.getrusage(resource.RUSAGE_SELF)
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            megabytes = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
            print(f"\nSTEP {used.ru_utime + used.ru_stime:.1f} {megabytes:.0f}", flush=True)
            os._exit(0)

    whole = train.train
    train.train = lambda *args, **options: whole(*args, **options, callbacks=[Stop()])
    train.main(argv)


def measure(folder: Path, scratch: Path) -> dict[str, tuple[float, float]]:
    """Returns processor seconds and megabytes at the first step: new, and resumed."""
    own = ["--run-dir", str(scratch / "run"), "--cache-dir", str(scratch / "cache")]
    command = [sys.executable, "-m", "benchmarks.large_folder", "--first-step"]
    found = {}
    for name in ("new", "resumed"):
        flags = [*FLAGS, "--data-dir", str(folder), *own]
        said = subprocess.run([*command, *flags], capture_output=True, text=True, check=True)
        line = next(x for x in said.stdout.splitlines() if x.startswith("STEP"))
        seconds, megabytes = map(float, line.split()[1:])
        found[name] = seconds, megabytes
    return found


def main(argv: list[str] | None = None) -> int:
    """Measures a large folder and a small one."""
    given = sys.argv[1:] if argv is None else argv
    if given[:1] == ["--first-step"]:
        first_step(given[1:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", type=int, nargs="?", default=118_000)
    count = parser.parse_args(given).images
    with tempfile.TemporaryDirectory() as scratch:
        found = {}
        for number in (200, count):
            folder = Path(scratch) / str(number)
            draw(folder / "data", number)
            found[number] = measure(folder / "data", folder)
    for name, (seconds, megabytes) in found[count].items():
        less, smaller = found[200][name]
        print(
            f"{name}: {seconds:.1f} s of processor time and {megabytes:.0f} MB at the first step, "
            f"{seconds - less:.1f} s and {megabytes - smaller:.0f} MB beyond those of 200 images"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
