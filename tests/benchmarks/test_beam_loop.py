"""The search in Python finds the captions that the search in the graph finds."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import models
from benchmarks.baseline import Baseline, BeamLoop
from benchmarks.shapes import TOY
from sat_tf.config import SearchConfig
from sat_tf.vocabulary import END


@pytest.fixture(scope="module")
def sides():
    """Both sides with the same weights, whose captions end sooner or later."""
    config = models.run_config(TOY)
    model = models.captioner(TOY, config)
    rng = np.random.default_rng(7)
    model.decoder.set_weights([0.7 * rng.normal(size=w.shape) for w in model.decoder.weights])
    bias = model.decoder.deep_output.word_projection.bias
    bias.assign(4.0 * np.eye(TOY.vocabulary_size, dtype=np.float32)[END])
    baseline = Baseline(TOY, config)
    baseline.copy_weights(model.decoder)
    return model, baseline


@pytest.mark.parametrize(("beam", "power"), [(1, 0.0), (4, 0.7)])
def test_same_weights_same_captions(sides, beam, power):
    model, baseline = sides
    search = SearchConfig(beam=beam, length_power=power, max_length=6)
    annotations = (
        np.random.default_rng(3)
        .normal(size=[12, TOY.locations, TOY.annotation_dim])
        .astype(np.float32)
    )
    found = model.search(tf.constant(annotations), search)
    lengths = found.lengths.numpy()[:, 0]
    assert lengths.min() < 6 <= lengths.max()
    loop = BeamLoop(baseline, TOY, search)
    for row, image in enumerate(annotations):
        words, score = loop.caption(image)
        assert words == found.token_ids.numpy()[row, 0, : lengths[row]].tolist()
        assert score == pytest.approx(float(found.scores[row, 0]), rel=1e-4)
