"""Writes a feature store and reads an epoch of batches in a process that may use little memory.

FOLDER LIMIT: the images are FOLDER/*.jpg, and LIMIT the bytes the process may use beyond what it
takes to import everything and to write and read a store of a few images. Prints the bytes of the
store and those by which the process grew at its largest.
"""

import resource
import sys
from pathlib import Path

import numpy as np

from sat_tf.layers.encoder import Encoder
from sat_tf.vocabulary import SPECIAL_TOKENS, Vocabulary
from training.data.batches import training_batches
from training.data.captions import caption_table
from training.data.examples import Example, Split
from training.data.feature_store import FeatureStore

WARM = 16


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
    return sum(path.stat().st_size for path in store.path.glob("*.f16"))


if __name__ == "__main__":
    folder, limit = Path(sys.argv[1]), int(sys.argv[2])
    # Cheap to compute and large to keep: 112 x 112 x 32.
    encoder = Encoder.unloaded("mobilenet_v2", 224, tap="Conv1")
    examples = [Example(p.name, p, ("a dog",)) for p in sorted(folder.glob("*.jpg"))]
    epoch(encoder, examples[:WARM], folder / "cache")
    before = status("VmRSS")
    allowed = status("VmData") + limit
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
    size = epoch(encoder, examples, folder / "cache")
    print(size, max(0, status("VmHWM") - before))
