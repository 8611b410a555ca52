"""Memory does not grow with the data: a process that may use a fifth of it works through it."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sat_tf.layers.encoder import Encoder
from sat_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from training.data.batches import training_batches
from training.data.captions import caption_table
from training.data.examples import Example, Split
from training.data.feature_store import FeatureStore

ROOT = Path(__file__).resolve().parents[3]
MEGABYTE = 2**20
LIMIT = 120 * MEGABYTE
IMAGES, WARM = 840, 16


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs RLIMIT_DATA of Linux")
def test_a_store_of_five_times_the_memory_allowed_is_written_and_read(tmp_path):
    rng = np.random.default_rng(0)
    for index in range(IMAGES):
        pixels = rng.integers(0, 256, [8, 8, 3], np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{index:04d}.jpg")
    done = subprocess.run(
        [sys.executable, "-m", __spec__.name, str(tmp_path), str(LIMIT)],
        cwd=ROOT,
        # Without the bound, glibc keeps a heap for every thread: 50 MB that are not ours, and what
        # the limit refuses in the middle of TensorFlow ends the process without a word.
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "MALLOC_ARENA_MAX": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) > 5 * LIMIT


def status(name: str) -> int:
    """A size of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name}:")]
    return 1024 * int(line.split()[1])


def epoch(encoder: Encoder, examples: list[Example], cache: Path) -> int:
    """The bytes of the store, once it is written and every caption is read from it."""
    store = FeatureStore.open(cache, encoder, examples, resize="squash")
    assert not store.skipped
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "a", "dog"))
    table = caption_table(Split("train", tuple(examples)), vocabulary)
    steps, batches = training_batches(store, table, 8, 0)
    rows = 0
    for batch in batches(0).take(steps):
        assert np.isfinite(batch["annotations"][:, ::500].numpy().astype("f4")).all()
        rows += len(batch["tokens"])
    assert rows == len(table)
    return store.path.stat().st_size


def work(folder: Path, limit: int) -> None:
    """Writes a store of FOLDER/*.jpg and reads an epoch of batches, in so many bytes more.

    More than it takes to import everything and to write and read a store of a few images; pages
    of the mapped file are the system's. Prints the bytes of the store.
    """
    # Cheap to compute and large to keep: 112 x 112 x 32.
    encoder = Encoder.unloaded("mobilenet_v2", 224, tap="Conv1")
    examples = [Example(p.name, p, ("a dog",)) for p in sorted(folder.glob("*.jpg"))]
    epoch(encoder, examples[:WARM], folder / "cache")
    allowed = status("VmData") + limit
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
    print(epoch(encoder, examples, folder / "cache"))


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]))
