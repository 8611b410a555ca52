"""From the training command to its first step, with annotations already in the store."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

from benchmarks.case import Case, Tables
from benchmarks.image_corpus import encode
from benchmarks.shapes import Shape, caption_lengths, caption_tokens
from benchmarks.stores import CAPTIONS

_IMPORTS = [sys.executable, "-c", "import tensorflow, keras"]
_SIDE = 64  # pixels; a warm start does not open the images


def measure(case: Case) -> Tables:
    """Measures `startup`, medians over the imports alone, and `phases` of that time."""
    shape, settings = case.shape, case.settings
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(shape, settings.images, folder / "data")
        start_training(shape, folder)  # fills the store
        imports, starts = [], []
        for _ in range(settings.repeats):
            imports.append(_seconds(_IMPORTS))
            starts.append(start_training(shape, folder))
    first_step = statistics.median(sum(phases.values()) for phases in starts)
    alone = statistics.median(imports)
    row = {
        "images": settings.images,
        "first_step_s": first_step,
        "imports_s": alone,
        "times_imports": first_step / alone,
    }
    phases = [
        {"phase": phase, "seconds": statistics.median(start[phase] for start in starts)}
        for phase in starts[0]
    ]
    return {"startup": [row], "phases": phases}


def write_data(shape: Shape, images: int, folder: Path) -> None:
    """Writes images and captions for `--data.name folder`; a tenth more for dev."""
    folder.mkdir()
    content = encode(Image.new("RGB", (_SIDE, _SIDE)), "JPEG")
    splits = ["train"] * images + ["dev"] * max(images // 10, 1)
    lengths = caption_lengths(len(splits) * CAPTIONS, 0)
    # Training adds the ends.
    captions = [
        " ".join(f"word{token}" for token in tokens[1:-1])
        for tokens in caption_tokens(lengths, shape.vocabulary_size, 0)
    ]
    lines = []
    for number, split in enumerate(splits):
        (folder / f"{number}.jpg").write_bytes(content)
        own = captions[number * CAPTIONS : (number + 1) * CAPTIONS]
        lines.append(json.dumps({"image": f"{number}.jpg", "captions": own, "split": split}))
    (folder / "captions.jsonl").write_text("\n".join(lines) + "\n", "utf-8")


def start_training(shape: Shape, folder: Path) -> dict[str, float]:
    """Returns seconds per phase up to the first step, in a new process and a new run."""
    with tempfile.TemporaryDirectory(dir=folder) as run:
        out = Path(run) / "phases.json"
        command = [sys.executable, "-m", "benchmarks.first_step", str(out)]
        began = time.time()
        done = subprocess.run(
            [*command, *training_arguments(shape, folder, Path(run) / "run")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if not out.exists():
            raise OSError(f"training did not reach its first step:\n{done.stderr[-2000:]}")
        marks = json.loads(out.read_text())
    phases = {"interpreter": marks["began"] - began} | marks["phases"]
    rest = marks["ended"] - began - sum(phases.values())
    return phases | {"the rest": rest}


def training_arguments(shape: Shape, folder: Path, run_dir: Path) -> list[str]:
    """Returns the command line of `training.train` for this shape."""
    return [
        *("--recipe", "folder_soft", "--data.min-count", "1"),
        *("--encoder.name", shape.backbone, "--encoder.weights", "None"),
        *("--encoder.image-size", str(shape.image_size)),
        *("--decoder.embedding-dim", str(shape.embedding_dim)),
        *("--decoder.attention-dim", str(shape.attention_dim)),
        *("--decoder.hidden-dim", str(shape.hidden_dim), "--decoder.bottleneck-dim", "None"),
        *("--data-dir", str(folder / "data"), "--cache-dir", str(folder / "cache")),
        *("--run-dir", str(run_dir), "--strategy", "none"),
    ]


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start
