"""The fingerprint of a store follows everything that annotations depend on."""

from __future__ import annotations

import os

from sat_tf import images
from sat_tf.layers.encoder import Encoder
from tests.training.data.small_stores import SIZE, drawn, files
from training.data.examples import Example
from training.data.feature_store import fingerprint


def test_the_fingerprint_follows_all_that_annotations_depend_on(tmp_path):
    encoder, on_disk = Encoder("scenes_cnn", SIZE), files(tmp_path, 3)

    def identity(encoder=encoder, examples=on_disk, resize="crop", mirrored=False, shard=4):
        return fingerprint(encoder, examples, resize, mirrored, shard)

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


def test_the_fingerprint_follows_the_version_of_the_preprocessing(monkeypatch):
    encoder = Encoder("scenes_cnn", SIZE)
    before = fingerprint(encoder, drawn(1), "crop", False, 4)
    monkeypatch.setattr(images, "VERSION", images.VERSION + 1)
    assert fingerprint(encoder, drawn(1), "crop", False, 4) != before


def test_stores_from_before_tiff_was_read_are_not_used_for_it(tmp_path):
    encoder = Encoder("scenes_cnn", SIZE)
    prints = []
    for name in ("a.tiff", "a.png"):
        (tmp_path / name).write_bytes(b"content")
        os.utime(tmp_path / name, (1, 1))
        prints.append(fingerprint(encoder, [Example("a", tmp_path / name, ())], "crop", False, 4))
    assert prints[0] != prints[1]
