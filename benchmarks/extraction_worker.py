"""One of the processes that fill a store, started by `benchmarks.extraction`.

`python -m benchmarks.extraction_worker IMAGES COUNT SHARD_SIZE BACKBONE CACHE` says when it is
ready, when the encoder has run alone on as many images, and when the store is filled; after the
first two it waits for a line.
"""

from __future__ import annotations

import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from sat_tf.layers.encoder import Encoder
from training.data import extraction
from training.data.examples import Example
from training.data.feature_store import FeatureStore

_SIZE = 224


def main(images: str, count: str, shard_size: str, backbone: str, cache: str) -> None:
    """Runs the command."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    files = sorted(Path(images).glob("*.jpg"))[: int(count)]
    examples = [Example(path.name, path, ()) for path in files]
    keras.utils.set_random_seed(0)
    encoder, batch = Encoder.unloaded(backbone, _SIZE), extraction.default_batch_size()
    compiled = extraction.compile_encoder(encoder, batch)
    blank = np.zeros([batch, _SIZE, _SIZE, 3], np.float32)
    compiled(blank)
    extraction.compile_encoder = lambda *_: compiled  # compiling is no part of filling
    _say("ready")
    for _ in range(int(count) // batch):
        compiled(blank)
    _say("encoded")
    options = {"resize": "crop", "shard_size": int(shard_size), "verbose": False}
    FeatureStore.open(Path(cache), encoder, examples, **options)
    print("filled", flush=True)


def _say(text: str) -> None:
    print(text, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
