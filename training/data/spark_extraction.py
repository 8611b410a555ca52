"""Filling a feature store on Spark: one task per shard, written into the shared folder."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from sat_tf.layers.encoder import Encoder
from sat_tf.progress import progress_bar
from sat_tf.spark import root_cause, watched
from training.data.examples import DataError, Example
from training.data.extraction import ShardWriter
from training.data.feature_shards import Shards

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import SparkSession

# Of this process, by store: Spark gives a Python worker one task after another.
_writers: dict[Shards, ShardWriter] = {}


def write_on_spark(
    spark: SparkSession,
    shards: Shards,
    encoder: Encoder,
    examples: Sequence[Example],
    resize: str,
    batch_size: int | None = None,
    verbose: bool = True,
) -> None:
    """Computes the missing shards on Spark's workers; the form of `write_missing`.

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
