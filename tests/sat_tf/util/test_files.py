"""Atomic writes: the old file or the new one; the cache's folder."""

import os
from pathlib import Path

import pytest

from sat_tf.util.files import default_cache_dir, write_atomically


@pytest.fixture
def path(tmp_path):
    """A file that was there before."""
    path = tmp_path / "report.json"
    path.write_text("old")
    return path


@pytest.mark.parametrize(
    ("content", "stored"), [("gr\u00fcn\n", b"gr\xc3\xbcn\n"), (b"\0\xff", b"\0\xff")]
)
def test_text_is_written_as_utf_8_and_bytes_unchanged(path, content, stored):
    write_atomically(path, content)
    assert path.read_bytes() == stored
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("step", ["chmod", "fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_an_error_at_any_step_keeps_the_old_file_and_no_other(path, monkeypatch, step, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(error)):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_the_cache_is_the_library_s_own_or_in_the_user_s(monkeypatch):
    monkeypatch.setenv("SAT_TF_CACHE", "own")
    monkeypatch.setenv("XDG_CACHE_HOME", "all")
    assert default_cache_dir() == Path("own")
    monkeypatch.delenv("SAT_TF_CACHE")
    assert default_cache_dir() == Path("all/sat_tf")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert default_cache_dir() == Path.home() / ".cache" / "sat_tf"
