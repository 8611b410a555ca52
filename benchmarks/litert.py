"""LiteRT beside the SavedModel: `python -m benchmarks.litert --run-dir RUN [--data-dir DIR]`.

Exports a run both ways and captions images of a split with each, one at a time, on one core, in
turns: sizes, equal captions, BLEU-4, images per second, and the start of `python -m serving.litert`
in a new process up to its first caption.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tyro

import sat_tf
from benchmarks.measure import format_table
from sat_tf.commands import exit_status
from sat_tf.images.pillow import read_content
from serving.export import Precision, export
from serving.litert import load as load_litert
from serving.saved_model import load_call
from serving.signatures import SERVING_DEFAULT
from training.config import read_run_config
from training.data.examples import Example, canonical_split
from training.data.sources import load_split
from training.metrics.captions import score_captions

_EXPORT = "SavedModel"
_STARTS = 3


@dataclass(frozen=True)
class Arguments:
    """Compare the LiteRT exports of a run with its SavedModel."""

    run_dir: Path
    """Run folder."""
    data_dir: Path | None = None
    """The user's copy of the data set that the run was trained on."""
    split: str = "dev"
    """Split whose images are captioned."""
    images: int | None = 100
    """Images to caption; None for all."""
    precisions: tuple[Precision, ...] = ("float32", "float16", "int8")
    """Precisions of the LiteRT exports."""
    core: int = 0
    """The processor core that everything runs on."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.litert")
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> None:
    """Exports, captions, times and prints."""
    captioner = sat_tf.load(arguments.run_dir)
    data = read_run_config(arguments.run_dir).data
    data = replace(data, limit=arguments.images)
    examples = load_split(data, canonical_split(arguments.split), arguments.data_dir).examples
    with tempfile.TemporaryDirectory() as name:
        folders = {_EXPORT: export(captioner, Path(name) / "saved_model")}
        for precision in arguments.precisions:
            out = Path(name) / precision
            folders[precision] = export(captioner, out, None, "litert", precision)
        # Threads that exist already keep their cores, so each session has one thread of its own.
        os.sched_setaffinity(0, {arguments.core})
        captioners = {what: _open(what, folder) for what, folder in folders.items()}
        print(f"{data.name} {arguments.split}, {len(examples)} images, one core", flush=True)
        print(format_table(compare(captioners, folders, examples)))


def compare(
    captioners: Mapping[str, Callable[[bytes], tuple[str, float]]],
    folders: Mapping[str, Path],
    examples: Sequence[Example],
) -> list[dict[str, Any]]:
    """Captions all images with every captioner in turns; returns a row per captioner."""
    contents = {example.image_id: content_of(example) for example in examples}
    found: dict[str, dict[str, tuple[str, float]]] = {what: {} for what in captioners}
    seconds = dict.fromkeys(captioners, 0.0)
    for number, (image_id, content) in enumerate(contents.items()):
        for what, caption in captioners.items():
            if number == 0:
                caption(content)  # the first call takes longer
            start = time.perf_counter()
            found[what][image_id] = caption(content)
            seconds[what] += time.perf_counter() - start
    references = {example.image_id: example.captions for example in examples}
    rows = []
    for what, captions in found.items():
        texts = {image_id: text for image_id, (text, _) in captions.items()}
        same = [i for i, text in texts.items() if text == found[_EXPORT][i][0]]
        row = {
            "what": what,
            "mb": sum(p.stat().st_size for p in folders[what].rglob("*") if p.is_file()) / 1e6,
            "equal": len(same) / len(texts),
            "score": max((abs(captions[i][1] - found[_EXPORT][i][1]) for i in same), default=0.0),
            "bleu_4": score_captions(texts, references, meteor=False).scores["bleu_4"],
            "images_s": len(texts) / seconds[what],
        }
        if what != _EXPORT:
            row["start_s"] = start_seconds(folders[what], next(iter(contents.values())))
        rows.append(row)
    return rows


def _open(what: str, folder: Path) -> Callable[[bytes], tuple[str, float]]:
    """Loads an export: image file in, caption and score out."""
    if what == _EXPORT:
        session = load_call(folder, threads=1)

        def by_session(content: bytes) -> tuple[str, float]:
            outputs = session(SERVING_DEFAULT, np.array([content], object))
            return outputs["captions"][0, 0].decode(), float(outputs["scores"][0, 0])

        return by_session
    captioner = load_litert(folder)

    def by_litert(content: bytes) -> tuple[str, float]:
        caption = captioner.caption(content)
        return caption.text, caption.score

    return by_litert


def content_of(example: Example) -> bytes:
    """An upright image file, as clients send it."""
    image = example.image
    if isinstance(image, np.ndarray):  # drawn
        return tf.io.encode_png(image).numpy()
    return read_content(image if isinstance(image, bytes) else image.read_bytes())


def start_seconds(folder: Path, content: bytes) -> float:
    """Median seconds from a new process to its first caption."""
    took = []
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        for _ in range(_STARTS):
            start = time.perf_counter()
            command = [sys.executable, "-m", "serving.litert", str(folder), file.name]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            took.append(time.perf_counter() - start)
    return statistics.median(took)


if __name__ == "__main__":
    # One thread for eager work too, before TensorFlow makes its own.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    sys.exit(main())
