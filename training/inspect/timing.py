"""Measures how long training will take: a few steps, and the encoder on a few images."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sat_tf.captioner import Captioner
from sat_tf.config import weights_files
from sat_tf.layers.encoder import Encoder
from sat_tf.objectives import make_objective
from sat_tf.vocabulary import Vocabulary
from training.config import RunConfig, check_available
from training.data.captions import CaptionTable
from training.data.examples import Example
from training.data.feature_shards import compile_encoder, default_batch_size
from training.data.image_loader import ImageLoader, Views
from training.features import reward_of
from training.inputs import Inputs, batches_of
from training.model import compile_model, new_model

_WARM_UP = 2  # steps; the first one traces the graph
SECONDS = 8.0  # approximate time of each measurement
_MOST_STEPS = 30
_MOST_IMAGES = 64


def measure(
    config: RunConfig,
    vocabulary: Vocabulary,
    table: CaptionTable,
    skipped: dict[int, str],
    examples: Sequence[Example],
) -> dict[str, Any]:
    """Builds the model of a configuration and times it, on one device.

    The train steps are those of the run, with its captions and batches, on random annotations (or
    random images, if the encoder is trained). ImageNet weights are not downloaded, nor those of
    `--init-from` read, as the time does not depend on them; a file, if there is one, must fit.

    Returns:
        `steps` per epoch, `step_seconds` and `epoch_seconds`, without validation. For a frozen
        encoder also `images_per_second` of the feature store and `bytes_per_image` in it, both
        with the mirrored views that training asks for.

    Raises:
        ValueError: The model cannot be built, for example as its weights file or Java is missing.
    """
    # Boxes and predictions cost next to nothing, and are not at hand here.
    config = config.without_files()
    attention = dataclasses.replace(config.attention, supervision_weight=0.0)
    fit = dataclasses.replace(config.fit, distillation_weight=0.0)
    config = dataclasses.replace(config, attention=attention, fit=fit)
    check_available(config)
    files = weights_files(config.encoder.weights)
    own = config.init_from is None and all(Path(file).is_file() for file in files)
    model = new_model(config.captioner, len(vocabulary), config.fit.precision, own)
    source = _RandomSource(model.encoder, skipped, config.fit.batch_size)
    sampled = config.reward.metric != "none"
    plan = fit.batch_size, config.seed, fit.batch_by == "image", sampled
    steps, batches_from = batches_of(table, Inputs(source, source), *plan)
    objective = reward_of(config, table, vocabulary) or make_objective(
        config.attention, fit.label_smoothing
    )
    compile_model(model, objective, config.optimizer, steps, fit, config.seed)
    seconds = _step_seconds(model, batches_from(0, 0))
    found = {"steps": steps, "step_seconds": seconds, "epoch_seconds": seconds * steps}
    if not model.encoder.trainable:
        views = 2 if config.data.mirror else 1
        height, width = model.encoder.grid
        found["images_per_second"] = _store_speed(
            model.encoder, examples[:_MOST_IMAGES], config.encoder.resize, views
        )
        found["bytes_per_image"] = views * height * width * model.encoder.annotation_dim * 2
    return found


class _RandomSource:
    """The same random inputs for every batch: the time does not depend on their values."""

    mirrored = False
    rotated: list[int] = []

    def __init__(self, encoder: Encoder, skipped: dict[int, str], batch_size: int) -> None:
        self.known = self.found = self.skipped = skipped
        side, (height, width) = encoder.image_size, encoder.grid
        rng = np.random.default_rng(0)
        if encoder.trainable:
            self.key, shape = "images", (side, side, 3)
            self._batch = rng.integers(0, 256, (batch_size, *shape), np.uint8)
        else:
            self.key, shape = "annotations", (height * width, encoder.annotation_dim)
            self._batch = rng.random((batch_size, *shape), np.float32).astype(np.float16)
        self.spec = tf.TensorSpec([None, *shape], self._batch.dtype)

    def read(self, indices: np.ndarray, views: Views | None = None) -> np.ndarray:
        return self._batch[: len(indices)]


class _Clock(keras.callbacks.Callback):
    """Notes the end of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_train_batch_end(self, batch: int, logs: dict[str, tf.Tensor]) -> None:
        float(next(iter(logs.values())))  # waits for a GPU to finish the step
        self.ends.append(time.monotonic())


def _step_seconds(model: Captioner, batches: tf.data.Dataset) -> float:
    """Mean seconds per step, after a warm-up."""

    def timed(steps: int) -> float:
        clock = _Clock()
        # Not shuffled, as in training; Keras warns otherwise.
        options = {"callbacks": [clock], "shuffle": False, "verbose": 0}
        model.fit(batches, epochs=1, steps_per_epoch=steps, **options)
        return (clock.ends[-1] - clock.ends[0]) / (steps - 1)

    steps = int(np.clip(SECONDS / max(timed(_WARM_UP), 1e-3), 1, _MOST_STEPS))
    return timed(steps + 1)


def _store_speed(encoder: Encoder, examples: Sequence[Example], resize: str, views: int) -> float:
    """Images per second through decoding and the encoder, as in the feature store."""
    size = min(default_batch_size(), len(examples))
    annotate = compile_encoder(encoder, size)
    annotate(np.zeros([size, encoder.image_size, encoder.image_size, 3], np.float32))
    loader, start, done = ImageLoader(examples, encoder.image_size, resize), time.monotonic(), 0
    for pixels, valid in loader.batches(range(len(examples)), size):
        for _ in range(views):
            annotate(pixels)
        done += len(valid)
        if time.monotonic() - start > SECONDS:
            break
    return done / (time.monotonic() - start)
