"""The latency of an export: what it is measured on."""

from __future__ import annotations

import numpy as np

from benchmarks.serving_latency import untrained
from sat_tf.config import SearchConfig


def test_captions_of_the_untrained_captioner_never_end_by_themselves():
    # Of six words one is <end>: a hypothesis without it would be luck.
    captioner = untrained(words=6, width=4)
    annotations = np.random.default_rng(0).normal(size=[3, 49, 1280]).astype(np.float32)
    found = captioner.search(annotations, SearchConfig(beam=2, max_length=7))
    np.testing.assert_array_equal(found.lengths, np.full([3, 2], 7))
    assert captioner.vocabulary.words[-1] == "word5"
