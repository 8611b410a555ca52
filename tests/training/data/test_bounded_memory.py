"""Memory does not grow with the data: a process that may use a fifth of it works through it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[3]
MEGABYTE = 2**20
LIMIT = 120 * MEGABYTE
IMAGES = 840


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs RLIMIT_DATA of Linux")
def test_a_store_of_five_times_the_memory_allowed_is_written_and_read(tmp_path):
    rng = np.random.default_rng(0)
    for index in range(IMAGES):
        pixels = rng.integers(0, 256, [8, 8, 3], np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{index:04d}.jpg")
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.data.bounded_process", str(tmp_path), str(LIMIT)],
        cwd=ROOT,
        # Without the bound, glibc keeps a heap for every thread: 50 MB that are not ours, and what
        # the limit refuses in the middle of TensorFlow ends the process without a word.
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "MALLOC_ARENA_MAX": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    size, grown = map(int, done.stdout.split()[-2:])
    print(f"store {size / MEGABYTE:.0f} MB, limit {LIMIT / MEGABYTE:.0f}, grown {grown / MEGABYTE}")
    assert size > 5 * LIMIT
    assert grown < LIMIT
