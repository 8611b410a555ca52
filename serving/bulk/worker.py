"""Captioning inside Spark's Python workers: paths or contents in, rows of the output out.

Imports the client's batches and reader of answers, and TensorFlow; no model or training code.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sat_tf.commands import loading
from sat_tf.errors import invalid_value
from sat_tf.images.pillow import read_upright
from serving.bulk.inputs import MAX_BYTES, read_file
from serving.bulk.job import Job
from serving.client.captions import ServedCaption, read_caption, split
from serving.versions import GRAPH_FILE

ARCHIVE = "captioner"
"""Name under which the engine unpacks the export on every machine."""
BATCHES_PER_TASK = 4
"""Most batches per task, as a task that dies is computed again."""
LEAST_TASKS = 32
"""Tasks of a chunk that has as many batches, so that all cores are busy to its end."""
BATCH_BYTES = 64 * 2**20
"""Bytes of images in a batch, unless a single one is larger."""

CAPTIONS, UNREADABLE = "captions", "unreadable"
"""Values of the column `output`, by which the output is divided."""
COLUMNS = {
    "path": "string",
    "caption": "string",
    "score": "float",
    "alternatives": "array<struct<caption: string, score: float>>",
    "words": "array<string>",
    "log_probs": "array<float>",
    "attention": "binary",
    "attention_shape": "array<int>",
    "version": "string",
    "reason": "string",
    "output": "string",
}
"""Columns of the output with Spark's types."""

_SIGNATURE, _INPUT = "serving_default", "image_bytes"
_NEEDED = ("captions", "scores", "valid")
_OUTPUTS = (*_NEEDED, "lengths", "reasons", "words", "word_log_probs")

Row = dict[str, Any]


def schema(job: Job) -> str:
    """Returns the columns of a job's output in Spark's notation."""
    left_out = () if job.maps else ("attention", "attention_shape")
    names = (name for name in COLUMNS if name not in left_out)
    return ", ".join(f"{name} {COLUMNS[name]}" for name in names)


def count_slices(images: int, batch_size: int) -> int:
    """Returns the number of tasks for so many files, the same on any cluster."""
    batches = -(-images // batch_size)
    return max(min(batches, LEAST_TASKS), -(-batches // BATCHES_PER_TASK))


def caption_slices(
    numbers: Iterable[int], paths: Sequence[str], slices: int, job: Job, cores: int
) -> Iterator[Row]:
    """Captions the slices of these numbers of a list of files."""
    for number in numbers:
        first, last = (len(paths) * n // slices for n in (number, number + 1))
        yield from _caption(map(_read, paths[first:last]), job, cores)


def caption_contents(
    rows: Iterable[tuple[str, bytearray | None]], job: Job, cores: int
) -> Iterator[Row]:
    """Captions rows of path and content."""
    prepared = ((str(path), prepare(bytes(content or b""))) for path, content in rows)
    yield from _caption(prepared, job, cores)


def _read(path: str) -> tuple[str, bytes | str]:
    try:
        return path, prepare(read_file(path))
    except (OSError, ValueError) as error:
        return path, f"cannot be read: {getattr(error, 'strerror', None) or error}"


def prepare(content: bytes) -> bytes | str:
    """Prepares a file for an export: turned by its EXIF, TIFF as PNG; or says why it cannot be."""
    if not content:
        return "the file is empty"
    if len(content) > MAX_BYTES:
        return f"{len(content) / 1e6:.0f} MB are more than {MAX_BYTES / 1e6:.0f} MB"
    try:
        return read_upright(content)
    except ValueError as error:
        return str(error)


def _caption(images: Iterable[tuple[str, bytes | str]], job: Job, cores: int) -> Iterator[Row]:
    from pyspark import SparkFiles

    for batch in split(images, job.batch_size, BATCH_BYTES, lambda image: len(image[1])):
        readable = [content for _, content in batch if isinstance(content, bytes)]
        values = {}
        if readable:
            values = load(SparkFiles.get(ARCHIVE), cores, job.maps)(readable)
        answers = (read_caption(values, row, 0) for row in range(len(readable)))
        for path, content in batch:
            answer = next(answers) if isinstance(content, bytes) else content
            yield to_row(path, answer, job)


@functools.cache  # once per process: Spark gives a Python worker one task after another
def load(folder: str, cores: int, maps: bool) -> Callable[[list[bytes]], dict[str, np.ndarray]]:
    """Loads a version of an export as TF Serving does, into a session with so many threads.

    Returns:
        Function from image files to the outputs by name, attention among them if it is asked for.
    """
    with loading():
        import tensorflow as tf

        from serving.saved_model import load_call

    tf.get_logger().setLevel(logging.ERROR)  # the session's loader calls itself deprecated
    call, wanted = load_call(Path(folder), cores), (*_OUTPUTS, "attention") if maps else _OUTPUTS
    return lambda images: call(_SIGNATURE, np.array(images, object), wanted)


def check_export(version: Path, maps: bool) -> None:
    """Checks that a version of an export captions image files, without loading it.

    Raises:
        ValueError: It has no `serving_default` from `image_bytes` to captions, or no attention.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    try:
        content = (version / GRAPH_FILE).read_bytes()
        model = saved_model_pb2.SavedModel.FromString(content)
    except DecodeError as error:
        raise invalid_value("--export", "a SavedModel", str(version)) from error
    if not model.meta_graphs:  # no byte at all is a message too
        raise invalid_value("--export", "a SavedModel", f"{version}, whose {GRAPH_FILE} is empty")
    signature = model.meta_graphs[0].signature_def[_SIGNATURE]
    if list(signature.inputs) != [_INPUT] or not set(_NEEDED) <= set(signature.outputs):
        inputs = ", ".join(signature.inputs) or "none"
        expected = f"an export whose `{_SIGNATURE}` makes captions of `{_INPUT}`"
        raise invalid_value("--export", expected, f"{version} with the inputs {inputs}")
    if maps and "attention" not in signature.outputs:
        raise invalid_value("--maps", "an export with attention", str(version))


def to_row(path: str, answer: ServedCaption | str, job: Job) -> Row:
    """Returns a row of the output, for a caption or for the reason why there is none."""
    row: Row = {"path": path, "version": job.version}
    if isinstance(answer, ServedCaption) and not answer.valid:
        answer = answer.reason or "the export cannot read it as an image"
    if isinstance(answer, str):
        return row | {"reason": answer, "output": UNREADABLE}
    alternatives = [{"caption": text, "score": score} for text, score in answer.alternatives]
    row |= {"caption": answer.text, "score": answer.score, "alternatives": alternatives}
    if answer.words:
        row["words"] = list(answer.words)
    if answer.log_probs is not None:
        row["log_probs"] = answer.log_probs.tolist()
    if job.maps and answer.alpha is not None:
        alpha = np.ascontiguousarray(answer.alpha, "<f2")
        row |= {"attention": bytearray(alpha.tobytes()), "attention_shape": list(alpha.shape)}
    return row | {"output": CAPTIONS}
