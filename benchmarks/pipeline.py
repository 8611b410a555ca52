"""Input pipeline: images to annotations once, annotations to batches in every epoch."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import models
from benchmarks.case import Case, Row, Settings, Tables
from benchmarks.measure import medians
from benchmarks.serving_load import drawn_photograph
from benchmarks.shapes import Shape
from benchmarks.stores import training_data
from sat_tf.layers.encoder import Encoder
from training.data.batches import training_batches
from training.data.bucketing import CaptionTable, padding_share, plan_epoch
from training.data.examples import Example
from training.data.extraction import compile_encoder
from training.data.image_loader import ImageLoader
from training.data.input_source import AnnotationSource

_ENCODER_BATCH = 8  # that of `FeatureStore` without a GPU
_PHOTOGRAPHS = 32
_STEPS = 8  # batches timed


def measure(case: Case) -> Tables:
    """Measures `pipeline`: one row per precision of the step that hides the reading."""
    shape, settings = case.shape, case.settings
    with tempfile.TemporaryDirectory() as folder:
        source, table = training_data(shape, settings.images, Path(folder))
        row = {"encode_images_s": encoding_rate(shape, settings.repeats)}
        row |= _reading(source, settings)
        steps = _batching(shape, source, table, settings)
    return {"pipeline": [row | step for step in steps]}


def encoding_rate(shape: Shape, repeats: int) -> float:
    """Returns images per second from JPEG to annotations, as the feature store is filled."""
    encoder = Encoder.unloaded(shape.backbone, shape.image_size)
    photograph = drawn_photograph()
    examples = [Example(f"image{n}", photograph, ()) for n in range(_PHOTOGRAPHS)]
    loader = ImageLoader(examples, shape.image_size, "crop")
    annotate = compile_encoder(encoder, _ENCODER_BATCH)

    def encode() -> None:
        for pixels, _ in loader.batches(range(_PHOTOGRAPHS), _ENCODER_BATCH):
            annotate(pixels)

    return _PHOTOGRAPHS / medians({"encode": encode}, repeats)["encode"]


def _reading(source: AnnotationSource, settings: Settings) -> Row:
    """Times random reads of a store whose files the system caches, as from the second epoch."""
    rng = np.random.default_rng(0)
    reads = [rng.integers(settings.images, size=settings.batch_size) for _ in range(_STEPS)]

    def read() -> None:
        for indices in reads:
            source.read(indices)

    rate = _STEPS * settings.batch_size / medians({"read": read}, settings.repeats)["read"]
    image_bytes = np.prod(source.spec.shape[1:]) * source.spec.dtype.size
    return {"read_images_s": rate, "read_mb_s": rate * float(image_bytes) / 1e6}


def _batching(
    shape: Shape, source: AnnotationSource, table: CaptionTable, settings: Settings
) -> list[Row]:
    """Times making a batch and a step on it; they run at the same time."""
    size = settings.batch_size
    data, steps = training_batches(source, table, size, 0, 0)
    count = min(_STEPS, steps)
    batches = list(itertools.islice(data, count))
    calls = {"batch": lambda: _read_epoch(source, table, size)}
    for precision in models.PRECISIONS:
        model = models.captioner(shape, models.run_config(shape, "soft", precision))
        step = models.train_function(model, shape, xla=False)
        calls[precision] = lambda step=step: [step(batch) for batch in batches]
    took = medians(calls, settings.repeats)
    batch_ms = 1e3 * took["batch"] / steps
    padding = padding_share(table.lengths, plan_epoch(table.lengths, size, 0, 0))
    about = {"batch": size, "batch_ms": batch_ms, "padding": padding}
    step_ms = {precision: 1e3 * took[precision] / count for precision in models.PRECISIONS}
    return [
        about | {"precision": precision, "step_ms": step, "share_of_step": batch_ms / step}
        for precision, step in step_ms.items()
    ]


def _read_epoch(source: AnnotationSource, table: CaptionTable, size: int) -> None:
    """Reads all batches of an epoch."""
    data, steps = training_batches(source, table, size, 0, 0)
    for _ in data.take(steps):
        pass
