"""Captioning inside Spark's Python workers: paths or contents in, rows of the output out.

Over LiteRT graphs without TensorFlow; or over a SavedModel, with the client's batches and reader of
answers.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from sat_tf.images.pillow import decode, resize, to_decodable, upright
from sat_tf.inference.batch import read_ahead
from sat_tf.inference.confidence import limit_paths, limits_in
from sat_tf.inference.litert_captioner import LiteRTCaptioner, is_export
from sat_tf.util.commands import loading
from serving.bulk.inputs import MAX_BYTES, read_file
from serving.bulk.job import NEEDED, SIGNATURE, Job

if TYPE_CHECKING:
    from sat_tf.inference.captions import Caption
    from serving.client.captions import ServedCaption

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
    "familiarity": "float",
    "confidence": "float",
    "attention": "binary",
    "attention_shape": "array<int>",
    "version": "string",
    "reason": "string",
    "output": "string",
}
"""Columns of the output with Spark's types."""

_OUTPUTS = (*NEEDED, "lengths", "reasons", "words", "word_log_probs", "familiarity", "confidence")

Row = dict[str, Any]
Image = tuple[str, bytes | str]
"""Path of an image, and its content; or why there is none."""
Item = TypeVar("Item")


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
        yield from _caption(paths[first:last], _read, job, cores)


def caption_contents(
    rows: Iterable[tuple[str, bytearray | None]], job: Job, cores: int
) -> Iterator[Row]:
    """Captions rows of path and content."""
    yield from _caption(rows, _given, job, cores)


def _read(path: str) -> Image:
    try:
        return path, prepare(read_file(path))
    except (OSError, ValueError) as error:
        return path, f"cannot be read: {getattr(error, 'strerror', None) or error}"


def _given(row: tuple[str, bytearray | None]) -> Image:
    path, content = row
    return str(path), prepare(bytes(content or b""))


def prepare(content: bytes) -> bytes | str:
    """Converts a TIFF to a PNG, and the like; or says why a file cannot be read."""
    if not content:
        return "the file is empty"
    if len(content) > MAX_BYTES:
        return f"{len(content) / 1e6:.0f} MB are more than {MAX_BYTES / 1e6:.0f} MB"
    try:
        return to_decodable(content)
    except ValueError as error:
        return str(error)


def _caption(
    items: Iterable[Item], read: Callable[[Item], Image], job: Job, cores: int
) -> Iterator[Row]:
    from pyspark import SparkFiles

    folder = SparkFiles.get(ARCHIVE)
    way = _by_graphs if is_export(Path(folder)) else _by_session
    for path, answer in way(folder, items, read, job, cores):
        yield to_row(path, answer, job)


def _by_graphs(
    folder: str, items: Iterable[Item], read: Callable[[Item], Image], job: Job, cores: int
) -> Iterator[tuple[str, Caption | str]]:
    """Captions one image after another; the next are decoded meanwhile."""
    captioner = load_graphs(folder, cores)
    form = captioner.settings.image_size, captioner.settings.resize

    def pixels(item: Item) -> tuple[str, np.ndarray | str]:
        path, content = read(item)
        if isinstance(content, str):
            return path, content
        try:
            return path, resize(decode(content), *form)
        except ValueError as error:
            return path, str(error)

    for path, image in read_ahead(items, pixels):
        try:
            yield path, image if isinstance(image, str) else captioner.best(image)
        except ValueError as error:
            yield path, str(error)


def _by_session(
    folder: str, items: Iterable[Item], read: Callable[[Item], Image], job: Job, cores: int
) -> Iterator[tuple[str, ServedCaption | str]]:
    """Captions in batches; the files of the next are read meanwhile."""
    from serving.client.captions import read_caption, split

    def turned(item: Item) -> Image:
        path, content = read(item)
        return path, content if isinstance(content, str) else upright(content)

    images = read_ahead(items, turned)
    for batch in split(images, job.batch_size, BATCH_BYTES, lambda image: len(image[1])):
        readable = [content for _, content in batch if isinstance(content, bytes)]
        values = load_session(folder, cores, job.maps)(readable) if readable else {}
        answers = (read_caption(values, row, 0) for row in range(len(readable)))
        for path, content in batch:
            yield path, next(answers) if isinstance(content, bytes) else content


# Once per process: Spark gives a Python worker one task after another.
@functools.cache
def load_graphs(folder: str, cores: int) -> LiteRTCaptioner:
    """Loads graphs with what their captioner knows of its limits, which the driver has checked."""
    captioner = LiteRTCaptioner(folder, cores)
    captioner.limits = limits_in(limit_paths(Path(folder)))
    return captioner


@functools.cache
def load_session(
    folder: str, cores: int, maps: bool
) -> Callable[[list[bytes]], dict[str, np.ndarray]]:
    """Loads a version of an export as TF Serving does, into a session with so many threads.

    Returns:
        Function from image files to the outputs by name, attention among them if it is asked for.
    """
    with loading():
        import tensorflow as tf

        from serving.saved_model import load_call

    tf.get_logger().setLevel(logging.ERROR)  # the session's loader calls itself deprecated
    call, wanted = load_call(Path(folder), cores), (*_OUTPUTS, "attention") if maps else _OUTPUTS
    return lambda images: call(SIGNATURE, np.array(images, object), wanted)


def to_row(path: str, answer: Caption | ServedCaption | str, job: Job) -> Row:
    """Returns a row of the output, for a caption or for the reason why there is none."""
    row: Row = {"path": path, "version": job.version}
    if not getattr(answer, "valid", True):  # a SavedModel reads the image itself
        answer = answer.reason or "the export cannot read it as an image"
    if isinstance(answer, str):
        return row | {"reason": answer, "output": UNREADABLE}
    alternatives = [{"caption": text, "score": score} for text, score in answer.alternatives]
    row |= {"caption": answer.text, "score": answer.score, "alternatives": alternatives}
    if answer.words:
        row["words"] = list(answer.words)
    if answer.log_probs is not None:
        row["log_probs"] = answer.log_probs.tolist()
    limits = {"familiarity": answer.familiarity, "confidence": answer.confidence}
    row |= {name: share for name, share in limits.items() if share is not None}
    if job.maps and answer.alpha is not None:
        alpha = np.ascontiguousarray(answer.alpha, "<f2")
        row |= {"attention": bytearray(alpha.tobytes()), "attention_shape": list(alpha.shape)}
    return row | {"output": CAPTIONS}
