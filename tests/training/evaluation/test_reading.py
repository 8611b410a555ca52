"""Bounds of reference captions under hard attention, on a tiny run."""

import numpy as np
import pytest
import tensorflow as tf

import sat_tf
from training.data.image_loader import ImageSource
from training.data.readers.scenes import load as load_scenes
from training.evaluation.bounds import Bounds, sampled_log_likelihood
from training.evaluation.reading import Reading


@pytest.fixture(scope="module")
def captioner(hard_run):
    return sat_tf.load(hard_run, engine="keras")


@pytest.fixture(scope="module")
def split():
    return load_scenes("dev", count=7)


@pytest.fixture
def source(split):
    return ImageSource(split.examples, 64, "crop")


def test_bounds_are_of_the_first_captions_of_images_that_can_be_read(captioner, split, source):
    source.found = {1: "no image"}
    found = Bounds(Reading(captioner, split, source), images=5, samples=10)
    assert len(found) == 5
    measured = found.measure()
    assert measured == found.measure()
    assert list(measured) == ["elbo", "importance_weighted_bound_5", "nwgm_gap", "forward_gap"]
    # Again by hand, in the same two batches.
    vocabulary, total, weighted = captioner.vocabulary, 0.0, 0.0
    chosen = [split.examples[i] for i in (0, 2, 3, 4, 5)]
    for number, part in enumerate((chosen[:4], chosen[4:])):
        limit = captioner.config.search.max_length
        ids = [[1, *vocabulary.encode(e.captions[0])[:limit], 2] for e in part]
        tokens = np.zeros([len(ids), max(map(len, ids))], np.int32)
        for row, words in enumerate(ids):
            tokens[row, : len(words)] = words
        annotations = captioner.annotate(np.stack([e.image for e in part]))
        log_lik = sampled_log_likelihood(
            captioner.model.decoder, annotations, tokens, 10, tf.constant([0, number])
        )
        sums = log_lik.numpy().sum(-1)
        total += sums.mean(0).sum()
        # Samples m and m + 2, m + 4, ... make a group.
        groups = [sums[m::2] for m in range(2)]
        weighted += sum(np.log(np.exp(group).mean(0)).sum() for group in groups) / 2
    assert measured["elbo"] == pytest.approx(total / 5, rel=1e-4)
    assert measured["importance_weighted_bound_5"] == pytest.approx(weighted / 5, rel=1e-4)
