"""Two processes fill one feature store as one does."""

from __future__ import annotations

import os

import pytest

from benchmarks.extraction import main
from benchmarks.image_corpus import encode, smooth


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_two_processes_fill_the_store_of_one(tmp_path, capsys):
    for number in range(6):
        (tmp_path / f"{number}.jpg").write_bytes(encode(smooth(80, 60), "JPEG"))
    flags = ["--count", "6", "--shard-size", "2", "--backbone", "scenes_cnn"]
    assert main(["--images", str(tmp_path), *flags]) == 0
    out = capsys.readouterr().out
    assert "1 processes:" in out and "2 processes:" in out
    assert out.endswith("fingerprint and content equal\n")


def test_more_processes_than_cores_are_an_error(tmp_path, capsys):
    assert main(["--images", str(tmp_path), "--workers", "9999"]) == 2
    assert "--workers" in capsys.readouterr().err
