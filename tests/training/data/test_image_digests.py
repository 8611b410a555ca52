"""Digests are those of the content, and a file is read again only after it was written to."""

from __future__ import annotations

import hashlib
import os
import shutil

import pytest

from training.data import feature_store
from training.data.feature_store import image_digests


@pytest.fixture
def images(tmp_path):
    """Files in two folders."""
    paths = [tmp_path / "a" / "0.png", tmp_path / "a" / "1.png", tmp_path / "b" / "0.png"]
    for place, path in enumerate(paths):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"content" + bytes([place]) * 10_000)
    return paths


@pytest.fixture
def read(monkeypatch):
    """The files that are read, in order."""
    read, digest = [], feature_store.sha256_of
    monkeypatch.setattr(feature_store, "sha256_of", lambda path: read.append(path) or digest(path))
    return read


def expected(paths):
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def test_files_are_read_once(images, tmp_path, read):
    assert image_digests(images, tmp_path) == expected(images)
    assert sorted(read) == images
    assert image_digests(images[::-1], tmp_path) == expected(images)
    assert image_digests(images[:1], tmp_path) == expected(images[:1])
    assert len(read) == 3


def test_a_file_that_was_written_to_is_read_again_even_with_its_old_time_and_size(
    images, tmp_path, read
):
    before = image_digests(images, tmp_path)[images[1]]
    status = images[1].stat()
    content = bytearray(images[1].read_bytes())
    content[5_000] ^= 1  # in the middle, as of a copy that went wrong
    images[1].write_bytes(content)
    os.utime(images[1], ns=(status.st_atime_ns, status.st_mtime_ns))
    assert image_digests(images, tmp_path) == expected(images)
    assert image_digests(images, tmp_path)[images[1]] != before
    assert read[3:] == [images[1]]


def test_a_file_that_cannot_be_read_has_none_and_is_asked_again(images, tmp_path):
    missing = images[0].with_name("missing.png")
    assert image_digests([missing, *images], tmp_path) == {missing: None} | expected(images)
    shutil.copy(images[0], missing)
    assert image_digests([missing], tmp_path) == expected([missing])


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff"])
def test_a_memory_that_cannot_be_read_is_made_anew(images, tmp_path, content):
    image_digests(images, tmp_path)
    for memory in (tmp_path / "digests").iterdir():
        memory.write_bytes(content)
    assert image_digests(images, tmp_path) == expected(images)


def test_without_a_place_for_the_memory_files_are_read_every_time(images, tmp_path, read):
    (tmp_path / "file").write_bytes(b"")
    for _ in range(2):
        assert image_digests(images, tmp_path / "file") == expected(images)
    assert len(read) == 6
