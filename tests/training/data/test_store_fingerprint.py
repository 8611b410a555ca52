"""The fingerprint of a store follows everything that annotations depend on."""

from __future__ import annotations

import os
from pathlib import Path

from sat_tf import images
from sat_tf.layers.encoder import Encoder
from tests.training.data.small_stores import SIZE, drawn, files
from training.data.examples import Example
from training.data.feature_store import fingerprint, image_digests


def identify(encoder, examples, cache, resize="crop", mirrored=False, shard=4):
    digests = image_digests([e.image for e in examples if isinstance(e.image, Path)], cache)
    return fingerprint(encoder, examples, resize, mirrored, shard, digests)


def test_the_fingerprint_follows_all_that_annotations_depend_on(tmp_path):
    encoder, on_disk = Encoder("scenes_cnn", SIZE), files(tmp_path, 3)

    def identity(encoder=encoder, examples=on_disk, resize="crop", mirrored=False, shard=4):
        return identify(encoder, examples, tmp_path, resize, mirrored, shard)

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
        identity(examples=[Example("a", b"x", ())]),
        identity(examples=[Example("a", b"y", ())]),
    ]
    before = identity()
    on_disk[1].image.write_bytes(on_disk[1].image.read_bytes() + b"\0")
    assert len({*others, before, identity()}) == len(others) + 2


def test_the_fingerprint_follows_the_version_of_the_preprocessing(monkeypatch, tmp_path):
    encoder = Encoder("scenes_cnn", SIZE)
    before = identify(encoder, drawn(1), tmp_path)
    monkeypatch.setattr(images, "VERSION", images.VERSION + 1)
    assert identify(encoder, drawn(1), tmp_path) != before


def test_a_copy_of_the_images_with_other_times_has_the_same_store(tmp_path):
    encoder, examples = Encoder("scenes_cnn", SIZE), files(tmp_path, 2)
    before = identify(encoder, examples, tmp_path)
    for example in examples:
        os.utime(example.image, (1, 1))
    assert identify(encoder, examples, tmp_path) == before
    copies = [
        Example(example.image_id, example.image.rename(tmp_path / f"copy_{place}.png"), ())
        for place, example in enumerate(examples)
    ]
    assert identify(encoder, copies, tmp_path) == before


def test_a_file_that_is_gone_is_known_as_such(tmp_path):
    encoder, examples = Encoder("scenes_cnn", SIZE), files(tmp_path, 1)
    before = identify(encoder, examples, tmp_path)
    examples[0].image.unlink()
    assert identify(encoder, examples, tmp_path) != before
