"""The feature store: annotations of the right images, in files that are never half written."""

import errno
import hashlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from sat_tf import images
from sat_tf.images import pillow
from sat_tf.layers.encoder import Encoder
from tests.image_files import exif_of
from tests.training.run.stopped_runs import lock_holder
from training.data import feature_store, image_files
from training.data.examples import DataError, Example
from training.data.feature_store import FeatureStore, Shards, fingerprint
from training.data.image_files import identify
from training.data.image_loader import Views

SIZE = 16  # pixels: a 2 x 2 grid
OPTIONS = {"resize": "crop", "shard_size": 4}


def open_store(cache: Path, encoder: Encoder, examples: list[Example], **options) -> FeatureStore:
    return FeatureStore.open(cache, encoder, examples, **OPTIONS | options)


def arrays(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, [count, SIZE, SIZE, 3], np.uint8)


def drawn(count: int, seed: int = 0) -> list[Example]:
    return [Example(str(i), pixels, ()) for i, pixels in enumerate(arrays(count, seed))]


def files(folder: Path, count: int) -> list[Example]:
    folder.mkdir(exist_ok=True)
    examples = []
    for index, pixels in enumerate(arrays(count)):
        path = folder / f"{index}.png"
        Image.fromarray(pixels).save(path)
        examples.append(Example(path.name, path, ()))
    return examples


def expected(encoder: Encoder, pixels: np.ndarray) -> np.ndarray:
    return np.asarray(encoder(np.asarray(pixels, np.float32))).astype(np.float16)


def close(actual: np.ndarray, desired: np.ndarray) -> None:
    np.testing.assert_allclose(actual.astype("f4"), desired.astype("f4"), atol=2e-3, rtol=2e-3)


def before_each_batch(monkeypatch, act: Callable[[int], None]) -> None:
    """Calls `act` with the number of images before the encoder annotates a batch."""
    original = feature_store.compile_encoder

    def compile_encoder(encoder, batch_size):
        annotate = original(encoder, batch_size)

        def annotated(pixels):
            act(len(pixels))
            return annotate(pixels)

        return annotated

    monkeypatch.setattr(feature_store, "compile_encoder", compile_encoder)
    monkeypatch.setattr(feature_store, "default_batch_size", lambda: 3)


def raise_at_fourth(error: BaseException) -> Callable[[int], None]:
    """For `before_each_batch`: lets three batches pass."""
    calls = iter(range(3))

    def act(_: int) -> None:
        if next(calls, None) is None:
            raise error

    return act


@pytest.fixture
def encoder() -> Encoder:
    return Encoder("scenes_cnn", SIZE)


def seen_in(mirrored) -> Views:
    return Views(np.array(mirrored, bool), np.zeros([len(mirrored), 2]))


def test_annotations_are_those_of_the_encoder_in_any_order(tmp_path, encoder):
    store = open_store(tmp_path, encoder, drawn(10))
    assert not store.rotated and store.spec.shape.as_list() == [None, 4, 32]
    order = np.array([9, 0, 4, 3, 4, 7])
    read = store.read(order)
    assert read.dtype == np.float16 and read.shape == (6, 4, 32)
    close(read, expected(encoder, arrays(10)[order]))
    assert store.read(np.array([], int)).shape == (0, 4, 32)
    store = open_store(tmp_path, encoder, drawn(6), mirrored=True)
    pixels = arrays(6)
    flip = np.array([True, False, True, True, False, False])
    seen = np.where(flip[:, None, None, None], pixels[:, :, ::-1], pixels)
    close(store.read(np.arange(6), seen_in(flip)), expected(encoder, seen))
    close(store.read(np.arange(6)), expected(encoder, pixels))


def test_unreadable_images_are_skipped_with_the_reason_and_named_in_a_file(tmp_path, encoder):
    examples = files(tmp_path / "images", 9)
    broken = {1: b"", 4: b"\0\0\0\x18ftypheic", 7: examples[7].image.read_bytes()[:60]}
    for index, content in broken.items():
        examples[index].image.write_bytes(content)
    examples[8].image.unlink()
    store = open_store(tmp_path, encoder, examples, mirrored=True)
    assert sorted(store.skipped) == [1, 4, 7, 8]
    assert "empty" in store.skipped[1] and "No such file" in store.skipped[8]
    assert "HEIC" in store.skipped[4]
    assert all(reason and "\n" not in reason for reason in store.skipped.values())
    named = json.loads((store.path / "skipped.json").read_text())
    assert list(named) == ["1.png", "4.png", "7.png", "8.png"]
    assert not store.read(np.array([1, 4, 7, 8]), seen_in([0, 1, 0, 1])).any()
    close(store.read(np.array([0, 5])), expected(encoder, arrays(9)[[0, 5]]))
    assert open_store(tmp_path, encoder, examples, mirrored=True).skipped == store.skipped


def test_an_image_lost_after_it_was_hashed_is_read_again_next_time(tmp_path, encoder, monkeypatch):
    examples, read_bytes = files(tmp_path / "images", 10), Path.read_bytes
    examples[9].image.unlink()  # gone from the start

    def fail(path):
        if path == examples[5].image:
            raise OSError(errno.EIO, "Input/output error")
        return read_bytes(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", fail)
        with pytest.raises(DataError, match=r"1 image could be read at first.*'5.png', which can"):
            open_store(tmp_path, encoder, examples)
    computed = []
    before_each_batch(monkeypatch, computed.append)
    store = open_store(tmp_path, encoder, examples)
    assert len(computed) == 2 and store.skipped.keys() == {9}  # one shard of four images
    close(store.read(np.array([4, 5])), expected(encoder, arrays(10)[[4, 5]]))


def test_rotated_photographs_are_turned_upright_and_listed(tmp_path, encoder):
    examples = files(tmp_path / "images", 6)
    Image.fromarray(arrays(1)[0]).save(examples[5].image, exif=exif_of(6))
    store = open_store(tmp_path, encoder, examples)
    assert store.rotated == [5]
    (tmp_path / "upright").write_bytes(pillow.upright(examples[5].image.read_bytes()))
    upright = Example("upright", tmp_path / "upright", ("a",))
    turned = open_store(tmp_path, encoder, [upright])
    np.testing.assert_array_equal(store.read([5]), turned.read([0]))


def test_values_beyond_half_precision_are_clipped_and_nan_becomes_zero(tmp_path, encoder):
    scale, shift = encoder.weights[-2:]
    shift.assign(np.r_[1e6, np.nan, np.zeros(30)])
    scale.assign(np.zeros(scale.shape))
    read = open_store(tmp_path, encoder, drawn(2)).read(np.arange(2))
    np.testing.assert_array_equal(read[..., 0], np.float16(65504))
    assert not read[..., 1:].any()


def test_no_examples_or_a_trained_encoder_are_errors(tmp_path, encoder):
    with pytest.raises(DataError, match="`examples`: it is empty"):
        open_store(tmp_path, encoder, [])
    with pytest.raises(ValueError, match="--encoder.trainable"):
        open_store(tmp_path, Encoder("scenes_cnn", SIZE, trainable=True), drawn(2))


def identity_of(encoder, examples, cache, resize="crop", mirrored=False, shard=4):
    found = identify([e.image for e in examples if isinstance(e.image, Path)], cache)
    digests = found or [None] * len(examples)
    return fingerprint(encoder, examples, resize, mirrored, shard, digests)


def test_the_fingerprint_follows_all_that_annotations_depend_on(tmp_path, monkeypatch):
    encoder, on_disk = Encoder("scenes_cnn", SIZE), files(tmp_path, 3)

    def identity(encoder=encoder, examples=on_disk, resize="crop", mirrored=False, shard=4):
        return identity_of(encoder, examples, tmp_path, resize, mirrored, shard)

    same = Encoder.from_config(encoder.get_config())
    assert identity(same) != identity()
    same.set_weights(encoder.get_weights())
    assert identity(same) == identity() == identity()
    others = [
        identity(Encoder("scenes_cnn", SIZE, tap="conv4")),
        identity(resize="squash"),
        identity(mirrored=True),
        identity(shard=8),
        identity(examples=on_disk[:2]),
        identity(examples=on_disk[::-1]),
        identity(examples=drawn(3)),
        identity(examples=drawn(3, seed=1)),
    ]
    before = identity()
    on_disk[1].image.write_bytes(on_disk[1].image.read_bytes() + b"\0")
    assert len({*others, before, identity()}) == len(others) + 2
    encoder = Encoder("scenes_cnn", SIZE)
    before = identity_of(encoder, drawn(1), tmp_path)
    monkeypatch.setattr(images, "VERSION", images.VERSION + 1)
    assert identity_of(encoder, drawn(1), tmp_path) != before


@pytest.fixture
def three(tmp_path):
    """Files in two folders."""
    paths = [tmp_path / "a" / "0.png", tmp_path / "a" / "1.png", tmp_path / "b" / "0.png"]
    for place, path in enumerate(paths):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"content" + bytes([place]) * 10_000)
    return paths


@pytest.fixture
def read(monkeypatch):
    """The content of the files that are read, in order."""
    read = []

    def opened(path, mode):
        read.append(Path(path).read_bytes())
        return open(path, mode)

    monkeypatch.setattr(image_files, "open", opened, raising=False)
    return read


def digests_found(files, cache_dir) -> dict:
    return dict(zip(files, identify(files, cache_dir), strict=True))


def digests_of(paths):
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def test_files_are_read_once(three, tmp_path, read):
    assert digests_found(three, tmp_path) == digests_of(three)
    assert sorted(read) == sorted(path.read_bytes() for path in three)
    assert digests_found(three[::-1], tmp_path) == digests_of(three)
    assert digests_found(three[:1], tmp_path) == digests_of(three[:1])
    assert len(read) == 3


def test_a_file_written_to_is_read_again_even_with_its_old_time_and_size(three, tmp_path, read):
    before = digests_found(three, tmp_path)[three[1]]
    status = three[1].stat()
    content = bytearray(three[1].read_bytes())
    content[5_000] ^= 1  # in the middle, as of a copy that went wrong
    three[1].write_bytes(content)
    os.utime(three[1], ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digests_found(three, tmp_path) == digests_of(three)
    assert digests_found(three, tmp_path)[three[1]] != before
    assert read[3:] == [three[1].read_bytes()]


def test_a_link_to_another_file_of_the_same_size_and_times_is_read_again(tmp_path, monkeypatch):
    def stat_of_one_tick(path, stat=os.stat, **options):
        found = stat(path, **options)
        fields = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
        return SimpleNamespace(**{**fields, "st_mtime_ns": 1, "st_ctime_ns": 1})

    link = tmp_path / "link"
    for content in (b"one", b"two"):
        (tmp_path / content.decode()).write_bytes(content)
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / content.decode())
        with monkeypatch.context() as patch:
            patch.setattr(os, "stat", stat_of_one_tick)
            found = digests_found([link], tmp_path / "cache")
        assert found == digests_of([link])


def contents(store: FeatureStore) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.path.iterdir()}


def test_a_finished_store_is_not_computed_again(tmp_path, encoder, monkeypatch):
    first = open_store(tmp_path, encoder, drawn(10))
    stamps = {path: path.stat().st_mtime_ns for path in first.path.iterdir()}
    monkeypatch.setattr(feature_store, "compile_encoder", None)  # calling it would fail
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
