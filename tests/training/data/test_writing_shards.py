"""Tasks that fill a feature store, as one of Spark's workers runs them."""

import pickle
from types import SimpleNamespace

import numpy as np
import tensorflow as tf

from sat_tf.layers.encoder import Encoder
from tests.training.data.small_stores import SIZE, files, open_store
from training.data.feature_shards import write_shards


def write_here(shards, encoder, examples, resize) -> None:
    """Stands for the engine: one task per shard, each sent as bytes."""
    sent = SimpleNamespace(value=(Encoder, encoder.get_config(), encoder.get_weights()))
    cores = tf.config.threading.get_intra_op_parallelism_threads()
    for shard in shards.missing():
        row = (shard, {index: examples[index] for index in shards.indices(shard)})
        write_shards(pickle.loads(pickle.dumps([row])), shards, sent, resize, cores)


def test_tasks_leave_the_store_of_one_process(tmp_path):
    encoder = Encoder("scenes_cnn", SIZE)
    examples = files(tmp_path / "images", 10)
    examples[4].image.write_bytes(b"broken")
    stores = [
        open_store(tmp_path / str(n), encoder, examples, mirrored=True, write=write)
        for n, write in enumerate((None, write_here))
    ]
    contents = [{p.name: p.read_bytes() for p in store.path.iterdir()} for store in stores]
    assert contents[0] == contents[1] and stores[0].path.name == stores[1].path.name
    assert stores[1].skipped.keys() == {4} and stores[1].read(np.arange(4)).any()


def test_a_shard_that_another_job_has_written_is_not_computed(tmp_path):
    encoder, examples = Encoder("scenes_cnn", SIZE), files(tmp_path / "images", 3)
    open_store(tmp_path, encoder, examples)

    def write(shards, *_) -> None:
        write_shards([(0, {})], shards, None, "crop", 1)  # computing it would fail

    open_store(tmp_path, encoder, examples, write=write)
