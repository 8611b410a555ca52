"""MNIST from a file: its splits, and what is wrong with a file."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from tests.training.digits.digit_fixtures import made_up
from training.data.examples import DataError
from training.digits.data import load_digits


def test_the_last_training_digits_are_dev_and_x_test_is_test(mnist):
    train, dev, test = (load_digits(split, mnist, 20) for split in ("train", "dev", "test"))
    images, labels = made_up(68, 1)
    np.testing.assert_array_equal(np.concatenate([train.images, dev.images]), images)
    np.testing.assert_array_equal(np.concatenate([train.labels, dev.labels]), labels)
    np.testing.assert_array_equal(test.images, made_up(30, 2)[0])
    assert (len(train), len(dev), len(test)) == (48, 20, 30)
    assert len(load_digits("val", mnist, 20, limit=7)) == 7
    assert dev.fingerprint() == load_digits("dev", mnist, 20).fingerprint() != train.fingerprint()


def test_a_file_without_test_digits_trains(make_mnist, tmp_path):
    folder = make_mnist(tmp_path, x_test=None, y_test=None)
    assert len(load_digits("train", folder, 20)) == 48
    with pytest.raises(DataError, match="has no x_test and no y_test"):
        load_digits("test", folder, 20)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"y_train": None}, "has no y_train"),
        ({"x_train": np.zeros([68, 14, 14], np.uint8)}, r"uint8 \[n, 28, 28\].*\[68, 14, 14\]"),
        ({"x_train": np.zeros([68, 28, 28])}, "got float64"),
        ({"y_train": np.zeros(3, np.uint8)}, r"each of the 68 images.*\[3\]"),
        ({"y_train": np.full(68, 10)}, "got 10 to 10"),
        ({"y_train": np.array([object()] * 68)}, "cannot be read as NumPy arrays"),
    ],
)
def test_what_is_no_mnist_is_an_error_that_says_why(make_mnist, tmp_path, changed, message):
    with pytest.raises(DataError, match=message):
        load_digits("train", make_mnist(tmp_path, **changed), 20)


def test_a_missing_or_damaged_file_is_an_error(tmp_path):
    with pytest.raises(DataError, match="has no mnist.npz"):
        load_digits("train", tmp_path)
    (tmp_path / "mnist.npz").write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(DataError, match="cannot be read as NumPy arrays"):
        load_digits("train", tmp_path)


def test_more_dev_digits_than_there_are_is_an_error(mnist):
    with pytest.raises(ValueError, match="dev_digits`: expected fewer than the 68"):
        load_digits("dev", mnist, 68)


def test_without_a_folder_digits_come_from_tensorflow_datasets(monkeypatch):
    images, labels = made_up(40, 3)

    class Builder:
        data_dir = "somewhere"
        fails = False

        def download_and_prepare(self):
            if self.fails:
                raise OSError("no network")

        def as_dataset(self, split, batch_size):
            assert (split, batch_size) == ("train", -1)
            return {"image": images[..., None], "label": labels}

    class DownloadError(Exception):
        pass

    fake = SimpleNamespace(
        builder=lambda name: Builder(),
        as_numpy=lambda arrays: arrays,
        download=SimpleNamespace(DownloadError=DownloadError),
    )
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", fake)
    np.testing.assert_array_equal(load_digits("dev", None, 10).images, images[30:])
    monkeypatch.setattr(Builder, "fails", True)
    with pytest.raises(DataError, match="cannot be prepared in somewhere: no network"):
        load_digits("dev")
