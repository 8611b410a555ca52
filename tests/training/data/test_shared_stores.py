"""Processes that fill one feature store together compute each shard once."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from sat_tf.layers.encoder import Encoder
from tests.training.data.small_stores import SIZE, before_each_batch, drawn, open_store
from tests.training.run_state.stopped_runs import lock_holder
from training.data.feature_shards import Shards


@pytest.fixture
def shards(tmp_path) -> Shards:
    return Shards(tmp_path, 10, 1, (4, 32), 4)


def test_a_claimed_shard_is_left_to_its_owner_until_it_dies(shards):
    with lock_holder(shards.file(1).with_suffix(".lock")) as owner:
        with shards.claim(1, wait=False) as mine, shards.claim(0, wait=False) as other:
            assert (mine, other) == (False, True)
        owner.kill()
        with shards.claim(1) as mine:
            assert mine
    assert not list(shards.path.iterdir())


def test_builders_at_once_annotate_each_image_once(tmp_path, monkeypatch):
    encoder, sizes, stores = Encoder("scenes_cnn", SIZE), [], []
    before_each_batch(monkeypatch, sizes.append)
    threads = [
        threading.Thread(target=lambda: stores.append(open_store(tmp_path, encoder, drawn(24))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 3
    assert sum(sizes) == 6 * 2 * 3  # six shards of four images, in batches padded to three
    alone = open_store(tmp_path / "alone", encoder, drawn(24))
    for store in stores:
        np.testing.assert_array_equal(store.read(np.arange(24)), alone.read(np.arange(24)))
    assert sorted(p.name for p in stores[0].path.iterdir()) == sorted(
        p.name for p in alone.path.iterdir()
    )
