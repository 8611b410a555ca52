"""LiteRT beside the SavedModel: `python -m benchmarks.litert --run-dir RUN [--data-dir DIR]`.

Exports a run both ways and captions images of a split with each, one at a time and in lists of 8,
in turns: sizes, equal captions, BLEU-4, images per second of processor time, and the start of
`python -m serving.litert` in a new process up to its first caption; beside the rate of a large
matrix product.
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
from benchmarks.measure import format_table, matrix_product, medians
from sat_tf.commands import exit_status
from sat_tf.images.pillow import read_content
from serving.export import Precision, export
from serving.saved_model import load_call
from serving.signatures import SERVING_DEFAULT
from training.config import read_run_config
from training.data.examples import Example, canonical_split
from training.data.sources import load_split
from training.metrics.quick import quick_scores

_EXPORT = "SavedModel"
_STARTS = 3
_LIST = 8
_COLUMNS = ("images_s", "images_s_of_8")
_Captions = Callable[[Sequence[bytes]], list[tuple[str, float]]]


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
    cores: int = 1
    """Processor cores that everything runs on, the first ones."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.litert")
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> None:
    """Exports, captions, times and prints."""
    captioner = sat_tf.load(arguments.run_dir)
    data = read_run_config(captioner.path).data
    data = replace(data, limit=arguments.images)
    examples = load_split(data, canonical_split(arguments.split), arguments.data_dir).examples
    with tempfile.TemporaryDirectory() as name:
        folders = {_EXPORT: export(captioner, Path(name) / "saved_model")}
        for precision in arguments.precisions:
            out = Path(name) / precision
            folders[precision] = export(captioner, out, None, "litert", precision)
        # Threads that exist already keep their cores, so each session has one thread of its own.
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: arguments.cores]))
        captioners = {
            what: _open(what, folder, arguments.cores) for what, folder in folders.items()
        }
        operations, product = matrix_product("float32")
        rate = operations / medians({"product": product}, 5, clock=time.process_time)["product"]
        print(f"{data.name} {arguments.split}, {len(examples)} images, cores: {arguments.cores}")
        print(f"{rate / 1e9:.0f} GFLOP per second of processor time in a large float32 product")
        print(format_table(compare(captioners, folders, examples)))


def compare(
    captioners: Mapping[str, _Captions],
    folders: Mapping[str, Path],
    examples: Sequence[Example],
) -> list[dict[str, Any]]:
    """Captions all images with every captioner in turns; returns a row per captioner."""
    contents = {example.image_id: content_of(example) for example in examples}
    found: dict[str, dict[str, tuple[str, float]]] = {what: {} for what in captioners}
    seconds = {what: dict.fromkeys(_COLUMNS, 0.0) for what in captioners}
    ids = list(contents)
    for first in range(0, len(ids), _LIST):
        part = ids[first : first + _LIST]
        files = [contents[image_id] for image_id in part]
        for what, caption in captioners.items():
            for column, lists in (
                ("images_s", [[file] for file in files]),
                ("images_s_of_8", [files]),
            ):
                if first == 0:
                    caption(lists[0])  # the first call takes longer
                start = time.process_time()
                captions = [one for some in lists for one in caption(some)]
                seconds[what][column] += time.process_time() - start
                found[what] |= zip(part, captions, strict=True)
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
            "bleu_4": quick_scores(texts, references, "ptb")["bleu_4"],
        } | {column: len(texts) / spent for column, spent in seconds[what].items()}
        if what != _EXPORT:
            row["start_s"] = start_seconds(folders[what], next(iter(contents.values())))
        rows.append(row)
    return rows


def _open(what: str, folder: Path, threads: int) -> _Captions:
    """Loads an export: image files in, captions and scores out."""
    if what == _EXPORT:
        session = load_call(folder, threads=threads)

        def by_session(contents: Sequence[bytes]) -> list[tuple[str, float]]:
            outputs = session(SERVING_DEFAULT, np.array(contents, object))
            texts = (text.decode() for text in outputs["captions"][:, 0])
            return list(zip(texts, map(float, outputs["scores"][:, 0]), strict=True))

        return by_session
    captioner = sat_tf.load(folder)
    return lambda contents: [(c.text, c.score) for c in captioner.caption(list(contents))]


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
