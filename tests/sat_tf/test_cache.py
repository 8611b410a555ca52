"""The folder of the library's cache."""

from __future__ import annotations

from pathlib import Path

from sat_tf.cache import default_cache_dir


def test_the_cache_is_the_library_s_own_or_in_the_user_s(monkeypatch):
    monkeypatch.setenv("SAT_TF_CACHE", "own")
    monkeypatch.setenv("XDG_CACHE_HOME", "all")
    assert default_cache_dir() == Path("own")
    monkeypatch.delenv("SAT_TF_CACHE")
    assert default_cache_dir() == Path("all/sat_tf")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert default_cache_dir() == Path.home() / ".cache" / "sat_tf"
