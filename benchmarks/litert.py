"""LiteRT beside the SavedModel: `python -m benchmarks.litert --run-dir RUN [--data-dir DIR]`.

Exports a run both ways and captions dev images with each, one at a time and in lists of 8, in
turns: sizes, equal captions, BLEU-4, images per second of processor time, and the start of
`python -m training.caption` in a new process up to its first caption; beside the rate of a large
matrix product.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import sat_tf
from benchmarks.measure import command, format_table, matrix_product, medians
from sat_tf.images.pillow import read_content
from sat_tf.inference.graphs import Precision, write_graphs
from sat_tf.scores import bleu
from serving import export_saved_model
from serving.saved_model import load_call
from serving.signatures import SERVING_DEFAULT
from training.data.examples import Example
from training.data.readers import load_split
from training.run.config import read_run_config

_EXPORT = "SavedModel"
_STARTS = 3
_LIST = 8

_Captions = Callable[[Sequence[bytes]], list[str]]


def run(
    run_dir: Path,
    data_dir: Path | None = None,
    images: int = 100,
    precisions: tuple[Precision, ...] = ("float32", "float16", "int8"),
    cores: int = 1,
) -> None:
    """Compares the LiteRT exports of a run with its SavedModel.

    Args:
        run_dir: Run folder.
        data_dir: The user's copy of the data set that the run was trained on.
        images: Dev images to caption.
        precisions: Precisions of the LiteRT exports.
        cores: Processor cores that everything runs on, the first ones.
    """
    captioner = sat_tf.load(run_dir)
    data = replace(read_run_config(captioner.path).data, limit=images)
    examples = load_split(data, "dev", data_dir).examples
    with tempfile.TemporaryDirectory() as name:
        folders = {_EXPORT: export_saved_model.export(captioner, Path(name) / "saved_model")}
        for precision in precisions:
            out = Path(name) / precision
            folders[precision] = out
            write_graphs(out, captioner, precision)
        # Threads that exist already keep their cores, so each session has one thread of its own.
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
        captioners = {what: _open(what, folder, cores) for what, folder in folders.items()}
        operations, product = matrix_product("float32")
        rate = operations / medians({"product": product}, 5, clock=time.process_time)["product"]
        print(f"{data.name}, {len(examples)} images, cores: {cores}")
        print(f"{rate / 1e9:.0f} GFLOP per second of processor time in a large float32 product")
        print(format_table(compare(captioners, folders, examples)))


def compare(
    captioners: Mapping[str, _Captions],
    folders: Mapping[str, Path],
    examples: Sequence[Example],
) -> list[dict[str, Any]]:
    """Captions all images with every captioner in turns; returns a row per captioner."""
    contents = [content_of(example) for example in examples]
    texts: dict[str, list[str]] = {what: [] for what in captioners}
    one_by_one, in_lists = Counter(), Counter()  # seconds
    for caption in captioners.values():
        caption(contents[:1])  # the first call takes longer
    for first in range(0, len(contents), _LIST):
        files = contents[first : first + _LIST]
        for what, caption in captioners.items():
            start = time.process_time()
            for file in files:
                caption([file])
            middle = time.process_time()
            texts[what] += caption(files)
            one_by_one[what] += middle - start
            in_lists[what] += time.process_time() - middle
    references = [example.captions for example in examples]
    rows = []
    for what, found in texts.items():
        same = sum(a == b for a, b in zip(found, texts[_EXPORT], strict=True))
        files = (path for path in folders[what].rglob("*") if path.is_file())
        row = {
            "what": what,
            "mb": sum(path.stat().st_size for path in files) / 1e6,
            "equal": same / len(examples),
            "bleu_4": bleu(found, references).score,
            "images_s": len(examples) / one_by_one[what],
            "images_s_of_8": len(examples) / in_lists[what],
        }
        if what != _EXPORT:
            row["start_s"] = start_seconds(folders[what], contents[0])
        rows.append(row)
    return rows


def _open(what: str, folder: Path, threads: int) -> _Captions:
    """Loads an export: image files in, captions out."""
    if what == _EXPORT:
        session = load_call(folder, threads=threads)

        def by_session(contents: Sequence[bytes]) -> list[str]:
            outputs = session(SERVING_DEFAULT, np.array(contents, object))
            return [text.decode() for text in outputs["captions"][:, 0]]

        return by_session
    captioner = sat_tf.load(folder)
    return lambda contents: [caption.text for caption in captioner.caption([*contents])]


def content_of(example: Example) -> bytes:
    """An upright image file, as clients send it."""
    image = example.image
    if isinstance(image, np.ndarray):  # drawn
        return tf.io.encode_png(image).numpy()
    return read_content(image.read_bytes())


def start_seconds(folder: Path, content: bytes) -> float:
    """Median seconds from a new process to its first caption."""
    took = []
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        for _ in range(_STARTS):
            start = time.perf_counter()
            called = [sys.executable, "-m", "training.caption", file.name, "--figure", "none"]
            called += ["--run-dir", str(folder)]
            subprocess.run(called, check=True, stdout=subprocess.DEVNULL)
            took.append(time.perf_counter() - start)
    return statistics.median(took)


if __name__ == "__main__":
    # One thread for eager work too, before TensorFlow makes its own.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    sys.exit(command(run))
