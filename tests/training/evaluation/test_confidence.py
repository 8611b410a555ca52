"""Confidence that a run learns from its dev captions, and what an evaluation says of it."""

from types import SimpleNamespace

import numpy as np

from sat_tf.config import SearchConfig
from sat_tf.inference.captions import Caption
from sat_tf.inference.confidence import Confidence, Limits
from training.evaluation.confidence import (
    fit_confidence,
    judge_captions,
    learn_confidence,
    no_confidence,
)

RNG = np.random.default_rng(0)


def caption(log_prob: float) -> Caption:
    return Caption(
        *("a dog", ("a", "dog"), log_prob / 2, log_prob, np.zeros(2), None, None),
        alternatives=(("a cat", log_prob / 2 - 0.5),),
        tokens=(4, 5, 2),
        familiarity=0.5,
    )


def test_confidence_is_learned_from_dev_and_judged_by_captions_that_did_not_fit_it(tmp_path):
    log_probs = RNG.normal(-9, 3, 500)
    right = RNG.random(500) < 1 / (1 + np.exp(-(6 + 0.7 * log_probs)))
    captions, search = [caption(float(value)) for value in log_probs], SearchConfig()
    captioner = SimpleNamespace(weights_sha256="mine", limits=Limits())
    path = tmp_path / "confidence.json"
    assert "it takes 30, 5 of them right" in no_confidence("en", captions[:20], right[:20])
    assert "in English only" in no_confidence("de", captions, right)
    assert not no_confidence("en-GB", captions, right)
    assert judge_captions(None, "dev", captions, right) == ({}, {})
    found = learn_confidence(captioner, search, captions, right, path)
    kept = Confidence.read(path, ["mine"])
    assert kept == found == captioner.limits.confidence and kept.fits(search)
    told = captioner.limits.weighed(captions, search)
    scores, details = judge_captions(found, "dev", told, right)
    assert details["cross_validated"] and scores["confidence_error"].difference < 8
    assert found.figures["captions_right"][0] == round(scores["captions_right"].difference, 2)
    scores, details = judge_captions(found, "test", told, right)
    assert not details["cross_validated"] and scores["confidence_auroc"].difference > 80
    # Another search's captions have none.
    others = captioner.limits.weighed(captions, SearchConfig(beam=2))
    assert judge_captions(found, "test", others, right) == ({}, {})
    # An image without a caption spoils nothing.
    none = fit_confidence(
        np.array([[-1e9, 0, 0, 0.5], *[[x, 2, 0, 0.5] for x in log_probs]]),
        np.array([False, *right]),
    )
    assert none.slopes[0] > 0.01
