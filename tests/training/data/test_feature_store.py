"""The feature store: correct annotations in any order, in bounded memory, of the right images."""

import errno
import hashlib
import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from sat_tf import images
from sat_tf.images import pillow
from sat_tf.layers.encoder import Encoder
from tests.image_files import exif_of
from tests.training.data.small_stores import (
    SIZE,
    arrays,
    before_each_batch,
    close,
    drawn,
    expected,
    files,
    open_store,
)
from training.data import image_files
from training.data.examples import DataError, Example
from training.data.feature_store import fingerprint
from training.data.image_files import identify
from training.data.image_loader import Views


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
    digests = [one.sha256 for one in found] or [None] * len(examples)
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
    read, key = [], image_files.content_key
    monkeypatch.setattr(image_files, "content_key", lambda c: read.append(c) or key(c))
    return read


def digests_found(files, cache_dir) -> dict:
    found = identify(files, cache_dir)
    return {path: one and one.sha256 for path, one in zip(files, found, strict=True)}


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
