"""A store's files: kept, completed, and never half written."""

import errno
import os
import pickle
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.layers.encoder import Encoder
from tests.training.data.small_stores import (
    SIZE,
    arrays,
    before_each_batch,
    close,
    drawn,
    expected,
    files,
    open_store,
    raise_at_fourth,
)
from tests.training.run_state.stopped_runs import lock_holder
from training.data import feature_shards
from training.data.examples import DataError
from training.data.feature_shards import Shards, write_shards
from training.data.feature_store import FeatureStore


@pytest.fixture
def encoder() -> Encoder:
    return Encoder("scenes_cnn", SIZE)


def contents(store: FeatureStore) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.path.iterdir()}


def test_a_finished_store_is_not_computed_again(tmp_path, encoder, monkeypatch):
    first = open_store(tmp_path, encoder, drawn(10))
    stamps = {path: path.stat().st_mtime_ns for path in first.path.iterdir()}
    monkeypatch.setattr(feature_shards, "compile_encoder", None)  # calling it would fail
    second = open_store(tmp_path, encoder, drawn(10))
    assert {path: path.stat().st_mtime_ns for path in second.path.iterdir()} == stamps


def test_an_interrupted_run_resumes_with_what_is_missing(tmp_path, encoder, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        before_each_batch(patch, raise_at_fourth(KeyboardInterrupt()))
        open_store(tmp_path, encoder, drawn(10))
    (folder,) = (tmp_path / "features").iterdir()
    assert sorted(p.name for p in folder.glob("0*")) == ["00000.f16", "00000.json"]
    assert not list(folder.glob("*.tmp"))
    sizes: list[int] = []
    before_each_batch(monkeypatch, sizes.append)
    store = open_store(tmp_path, encoder, drawn(10))
    assert sizes == [3, 3, 3]  # 4 + 2 images, in batches padded to three
    close(store.read(np.arange(10)), expected(encoder, arrays(10)))


@pytest.mark.parametrize("damage", ["truncate", "lengthen", "remove", "notes", "no notes"])
def test_a_damaged_shard_is_computed_again_and_no_other(tmp_path, encoder, monkeypatch, damage):
    store = open_store(tmp_path, encoder, drawn(10))
    before = contents(store)
    shard, notes = store.path / "00001.f16", store.path / "00001.json"
    match damage:
        case "truncate":
            os.truncate(shard, 1001)
        case "lengthen":
            shard.write_bytes(shard.read_bytes() + b"x")
        case "remove":
            shard.unlink()
        case "notes":
            notes.write_text('{"set_as')
        case "no notes":
            notes.unlink()
    sizes: list[int] = []
    before_each_batch(monkeypatch, sizes.append)
    assert contents(open_store(tmp_path, encoder, drawn(10))) == before
    assert sum(sizes) == 6


def test_a_full_disk_is_a_clear_error_and_keeps_finished_shards(tmp_path, encoder, monkeypatch):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    before_each_batch(monkeypatch, raise_at_fourth(full))
    with pytest.raises(DataError, match=r"No room.*No space left.*--cache-dir"):
        open_store(tmp_path, encoder, drawn(10))
    (folder,) = (tmp_path / "features").iterdir()
    assert (folder / "00000.f16").stat().st_size == 4 * 4 * 32 * 2
    assert not list(folder.glob("*.tmp"))


def test_temporary_files_of_killed_runs_are_removed_after_a_day(tmp_path, encoder):
    store = open_store(tmp_path, encoder, drawn(2))
    old = store.path / "00000.f16.1-a.tmp", store.path / ".manifest.json.x.tmp"
    new = store.path / "00000.f16.2-b.tmp"
    for path, age in ((old[0], 2 * 86400), (old[1], 2 * 86400), (new, 60)):
        path.write_text("half")
        stamp = path.stat().st_mtime - age
        os.utime(path, (stamp, stamp))
    open_store(tmp_path, encoder, drawn(2))
    assert new.exists() and not any(path.exists() for path in old)


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


def write_here(shards, encoder, examples, resize) -> None:
    """Stands for Spark: one task per shard, each sent as bytes."""
    sent = SimpleNamespace(value=(Encoder, encoder.get_config(), encoder.get_weights()))
    cores = tf.config.threading.get_intra_op_parallelism_threads()
    for shard in shards.missing():
        row = (shard, {index: examples[index] for index in shards.indices(shard)})
        write_shards(pickle.loads(pickle.dumps([row])), shards, sent, resize, cores)


def test_tasks_leave_the_store_of_one_process(tmp_path, encoder):
    examples = files(tmp_path / "images", 10)
    examples[4].image.write_bytes(b"broken")
    stores = [
        open_store(tmp_path / str(n), encoder, examples, mirrored=True, write=write)
        for n, write in enumerate((None, write_here))
    ]
    contents = [{p.name: p.read_bytes() for p in store.path.iterdir()} for store in stores]
    assert contents[0] == contents[1] and stores[0].path.name == stores[1].path.name
    assert stores[1].skipped.keys() == {4} and stores[1].read(np.arange(4)).any()


def test_a_shard_that_another_job_has_written_is_not_computed(tmp_path, encoder):
    examples = files(tmp_path / "images", 3)
    open_store(tmp_path, encoder, examples)

    def write(shards, *_) -> None:
        write_shards([(0, {})], shards, None, "crop", 1)  # computing it would fail

    open_store(tmp_path, encoder, examples, write=write)
