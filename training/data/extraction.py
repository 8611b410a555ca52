"""Computes the annotations that a feature store lacks: shard by shard, here or on Spark."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from sat_tf.layers.encoder import Encoder
from sat_tf.progress import progress_bar
from sat_tf.spark import root_cause, watched
from training.data.examples import DataError, Example
from training.data.feature_shards import Shards
from training.data.image_loader import ImageLoader

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import SparkSession

_HALF_MAX = float(np.finfo(np.float16).max)
# Of this process, by store: Spark gives a Python worker one task after another.
_writers: dict[Shards, ShardWriter] = {}


def compile_encoder(encoder: Encoder, batch_size: int) -> Callable[[np.ndarray], np.ndarray]:
    """Compiles the encoder for one batch size.

    Returns:
        Function from pixels `[batch_size, S, S, 3]` to float16 `[batch_size, L, D]`, in which NaN
        is 0 and infinity is the largest number.
    """
    size = encoder.image_size

    # XLA made convolutions ten times slower on a CPU.
    @tf.function(
        input_signature=[tf.TensorSpec([batch_size, size, size, 3], tf.float32)],
        autograph=False,
        jit_compile=False,
    )
    def annotate(pixels):
        annotations = tf.cast(encoder(pixels, training=False), tf.float32)
        annotations = tf.where(tf.math.is_nan(annotations), 0.0, annotations)
        return tf.cast(tf.clip_by_value(annotations, -_HALF_MAX, _HALF_MAX), tf.float16)

    return lambda pixels: annotate(pixels).numpy()


def default_batch_size() -> int:
    """Returns the images per call of an encoder that suit a CPU's cache, or a GPU."""
    return 64 if tf.config.list_physical_devices("GPU") else 8


class ShardWriter:
    """Computes shards with one encoder.

    Args:
        encoder: A frozen encoder.
        resize: `crop` or `squash`.
        batch_size: Images per call of the encoder; None for what suits the device.
    """

    def __init__(self, encoder: Encoder, resize: str, batch_size: int | None = None) -> None:
        self._size, self._resize = encoder.image_size, resize
        self._batch_size = batch_size or default_batch_size()
        self._annotate = compile_encoder(encoder, self._batch_size)

    def write(
        self,
        shards: Shards,
        shard: int,
        examples: Mapping[int, Example] | Sequence[Example],
        advance: Callable[[int], object] = lambda count: None,
    ) -> None:
        """Computes and writes a shard and its notes.

        Args:
            shards: The store's shards.
            shard: Number of the shard.
            examples: The examples by index; those of the shard suffice.
            advance: Is told the number of images after each batch.
        """
        loader, indices = ImageLoader(examples, self._size, self._resize), shards.indices(shard)

        def blocks() -> Iterator[np.ndarray]:
            for pixels, valid in loader.batches(indices, self._batch_size):
                views = [pixels, pixels[:, :, ::-1]][: shards.views]
                annotated = np.stack([self._annotate(view) for view in views], axis=1)[: len(valid)]
                annotated[~valid] = 0
                yield annotated
                advance(len(valid))

        shards.write(shard, blocks())
        shards.write_notes(shard, loader.notes(indices))


def write_missing(
    shards: Shards,
    encoder: Encoder,
    examples: Sequence[Example],
    resize: str,
    batch_size: int | None = None,
    verbose: bool = True,
) -> None:
    """Computes the shards that a store lacks, sharing them with other processes.

    Returns when all are there, those of the others included; see `FeatureStore.open`.
    """
    missing = shards.missing()
    if not missing:
        return
    writer = ShardWriter(encoder, resize, batch_size)
    total = sum(len(shards.indices(shard)) for shard in missing)
    with progress_bar(total, "Annotations", "images", verbose) as bar:
        # First what nobody else computes, then what others began: they may die.
        for wait in (False, True):
            elsewhere = []
            for shard in missing:
                with shards.claim(shard, wait) as mine:
                    if not mine:
                        elsewhere.append(shard)
                    elif shards.is_done(shard):
                        bar.update(len(shards.indices(shard)))
                    else:
                        writer.write(shards, shard, examples, bar.update)
            missing = elsewhere


def write_on_spark(
    spark: SparkSession,
    shards: Shards,
    encoder: Encoder,
    examples: Sequence[Example],
    resize: str,
    batch_size: int | None = None,
    verbose: bool = True,
) -> None:
    """Computes the missing shards on Spark's workers; takes the place of `write_missing`.

    Raises:
        DataError: Spark gave up; the shards that are done stay.
    """
    missing = shards.missing()
    if not missing:
        return
    # Each task brings its examples, so that workers load no data set.
    rows = [(n, {index: examples[index] for index in shards.indices(n)}) for n in missing]
    context = spark.sparkContext
    sent = context.broadcast((type(encoder), encoder.get_config(), encoder.get_weights()))
    cores = int(spark.conf.get("spark.task.cpus", "1"))
    write = functools.partial(
        write_shards, shards=shards, sent=sent, resize=resize, batch_size=batch_size, cores=cores
    )
    images = sum(len(examples) for _, examples in rows)
    with progress_bar(images, "Annotations", "images", verbose) as bar:
        try:
            with watched(spark, bar, images):
                context.parallelize(rows, len(rows)).foreachPartition(write)
        except Exception as error:  # py4j's and Spark's own
            raise DataError(
                f"Spark gave up on the feature store in {shards.path}: {root_cause(error)}. "
                "Finished parts are kept: start the same command again to resume."
            ) from error


def write_shards(
    rows: Iterable[tuple[int, Mapping[int, Example]]],
    shards: Shards,
    sent: Broadcast[Any],
    resize: str,
    batch_size: int | None,
    cores: int,
) -> None:
    """Computes shards inside a worker, unless another job has done so in the meantime.

    Args:
        rows: Numbers of shards, each with its examples by index.
        shards: The store's shards.
        sent: Class, configuration and weights of the encoder.
        resize: `crop` or `squash`.
        batch_size: Images per call of the encoder; None for what suits the device.
        cores: Threads of an operation.
    """
    for shard, examples in rows:
        with shards.claim(shard):
            if shards.is_done(shard):
                continue
            if shards not in _writers:
                if tf.config.threading.get_intra_op_parallelism_threads() != cores:
                    with contextlib.suppress(RuntimeError):  # something was computed before
                        tf.config.threading.set_intra_op_parallelism_threads(cores)
                kind, config, weights = sent.value
                encoder: Encoder = kind.from_config(config)
                encoder.set_weights(weights)
                _writers[shards] = ShardWriter(encoder, resize, batch_size)
            _writers[shards].write(shards, shard, examples)
