"""Familiarity and confidence: learned, kept, refused, and the same by every way of captioning."""

import dataclasses
import json
from hashlib import sha256

import numpy as np
import pytest

import sat_tf
from sat_tf.inference import published
from sat_tf.inference.confidence import (
    LEAST_DEV,
    UNFAMILIAR,
    Confidence,
    Familiarity,
    Limits,
    remark,
)
from sat_tf.inference.load import load_captioner
from sat_tf.inference.run_folder import RunFolder
from sat_tf.util.errors import RunError
from sat_tf.util.fields import to_dict
from sat_tf.util.files import sha256_of
from tests.sat_tf.tiny_runs import PIXELS, contents, write_run
from training.evaluation.confidence import fit_confidence, fit_familiarity

RNG = np.random.default_rng(0)
NOISE = np.random.default_rng(2).integers(0, 256, [32, 32, 3], np.uint8)


def images(count: int, width: int = 40) -> np.ndarray:
    """Returns mean annotations that vary along three directions, and a little along the others."""
    along = RNG.normal(size=[count, 3]) @ np.random.default_rng(1).normal(size=[3, width])
    return (along + 0.1 * RNG.normal(size=[count, width]) + 5).astype(np.float32)


@pytest.fixture(scope="module")
def familiarity() -> Familiarity:
    return fit_familiarity(images(300), images(200), "encoder")


def test_familiarity_is_a_position_among_dev_images(familiarity):
    dev = images(2000)
    found = familiarity.of(dev[:, np.newaxis])
    expected = (familiarity.distances(dev)[:, None] < familiarity.levels).mean(axis=1)
    np.testing.assert_allclose(found, expected, atol=0.01)
    assert abs(found.mean() - 0.5) < 0.1
    # Off the three directions, however near the mean, nothing is familiar.
    assert familiarity.of(familiarity.mean + RNG.normal(size=[5, 1, 40])).max() < UNFAMILIAR


@pytest.mark.parametrize("count", [1, 10, 30, 49, 60, 1000])
def test_at_most_one_in_fifty_new_images_of_the_same_kind_is_unlike(count):
    rng = np.random.default_rng(count)
    train = rng.standard_t(4, [200, 8])
    known, unlike, new = None, [], rng.standard_t(4, [500, 1, 8])
    for _ in range(40 if count == 1000 else 400):
        dev = rng.standard_t(4, [count, 8])
        known = known or fit_familiarity(train, dev, "encoder")
        levels = np.quantile(known.distances(dev), np.linspace(0, 1, len(known.levels)))
        unlike.append(dataclasses.replace(known, levels=levels).of(new) < UNFAMILIAR)
    share = np.mean(unlike)
    assert share <= 0.025
    assert (share > 0) == (count >= LEAST_DEV)


def test_a_caption_has_one_level_and_its_sentence():
    assert remark(None, None) == (None, "")
    assert remark(0.5) == (None, "")
    assert remark(0.019, 0.9).level == remark(0.019).level == "unlike"
    assert "expect this caption to be wrong" in remark(0.019, 0.9).sentence
    assert remark(0.02, 1 / 3).level == "usual words"
    level, sentence = remark(0.02, 0.33)
    assert (level, sentence) == (
        "other words",
        "People often describe such a photograph in other words.",
    )


def test_confidence_is_fitted_with_the_factor_of_unlike_photographs():
    evidence = np.column_stack([RNG.normal(-9, 3, 8000), *RNG.uniform(0.1, 1, [3, 8000])])
    unlike = RNG.random(8000) < 0.5
    evidence[unlike, 3] = UNFAMILIAR / 4
    chance = np.where(unlike, 0.25, 1) / (1 + np.exp(-(4 + 0.5 * evidence[:, 0])))
    found = fit_confidence(evidence, RNG.random(8000) < chance)
    assert np.abs(found.chances(evidence) - chance).mean() < 0.02


def test_confidence_is_fitted_to_what_was_right(familiarity):
    evidence = np.column_stack([RNG.normal(-9, 3, 4000), *RNG.uniform(0.1, 1, [3, 4000])])
    chance = 1 / (1 + np.exp(-(4 + 0.5 * evidence[:, 0])))
    found = fit_confidence(evidence, RNG.random(4000) < chance)
    np.testing.assert_allclose(found.chances(evidence), chance, atol=0.06)
    evidence[:, 3] = UNFAMILIAR / 4  # less than a dev image tells of: it goes to 0
    half = evidence.copy()
    half[:, 3] /= 2
    ratio = found.chances(half) / found.chances(evidence)
    np.testing.assert_allclose(ratio, 0.5, atol=0.01)


def test_files_hold_what_was_learned_and_refuse_other_weights(familiarity, tmp_path):
    path = tmp_path / "familiarity.json"
    path.write_bytes(familiarity.content())
    read, dev = Familiarity.read(path, ["encoder"]), images(50)[:, np.newaxis]
    np.testing.assert_allclose(read.of(dev), familiarity.of(dev), atol=1e-5)
    with pytest.raises(RunError, match="of other weights than this captioner's"):
        Familiarity.read(path, ["another"])
    values = json.loads(path.read_text())
    nan = [float("nan")] * len(familiarity.levels)
    for change in ({"rest": -2.0}, {"levels": []}, {"levels": nan}, {"weights": None}):
        path.write_text(json.dumps(values | change))
        with pytest.raises(RunError, match="damaged"):
            Familiarity.read(path, ["encoder"])
    wide = fit_familiarity(images(90, 3328), images(40, 3328), "encoder")
    assert len(wide.content()) < 200_000


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    """A run that knows its limits."""
    folder = RunFolder(write_run(tmp_path_factory.mktemp("limited") / "run"))
    captioner = load_captioner(folder.path)
    noise = RNG.integers(0, 256, [60, 32, 32, 3]).astype(np.float32)
    means = captioner.annotate(noise).numpy().mean(axis=1)
    weights = sha256_of(folder.best_weights)
    folder.familiarity.write_bytes(fit_familiarity(means[:40], means[40:], weights).content())
    search = to_dict(captioner.config.search) | {"min_length": 1}  # as earlier versions wrote it
    sure = Confidence(0.5, (0.1, -0.02, 0.3, 1.0), search, {"images": 20}, (weights,))
    folder.confidence.write_bytes(sure.content())
    return folder.path


@pytest.mark.slow
def test_every_way_tells_the_same(limited, tmp_path):
    from sat_tf.inference.graphs import write_graphs
    from serving.export_saved_model import export
    from tests.serving.export_fixtures import load_call

    captioner = load_captioner(limited)
    own = captioner.caption(NOISE)
    told = [own.familiarity, own.confidence]
    assert 0 <= told[0] <= 1 and 0 < told[1] < 1
    narrow = dataclasses.replace(captioner.config.search, beam=1)
    assert captioner.caption(NOISE, narrow).confidence is None  # which is of another search
    lite = tmp_path / "lite"
    write_graphs(lite, captioner)
    files = contents(limited, captioner)
    for name in ("a", "b"):
        hashes = [sha256(files[part]).hexdigest() for part in published.WEIGHTS.values()]
        known = captioner.limits.files(hashes[:1], hashes)
        published.write(tmp_path / name, files | known, share_encoder=True)
    for folder, apart in ((lite, 1e-4), (tmp_path / "b", 0.05)):  # its weights are rounded
        found = sat_tf.load(folder).caption(NOISE)
        np.testing.assert_allclose([found.familiarity, found.confidence], told, atol=apart)
    call = load_call(export(captioner, tmp_path / "served"))
    served = call("pixels", NOISE[np.newaxis], ("familiarity", "confidence"))
    np.testing.assert_allclose([served["familiarity"][0], served["confidence"][0]], told, atol=1e-4)
    assert len(list(tmp_path.glob("familiarity-*.json"))) == 1  # of both, as the encoder is
    (tmp_path / "b" / "confidence.json").unlink()
    with pytest.raises(RunError, match="it has no confidence.json"):
        sat_tf.load(tmp_path / "b")


def test_a_run_of_before_tells_nothing_and_other_statistics_are_refused(limited, run_of, tmp_path):
    caption = sat_tf.load(run_of["soft"]).caption(PIXELS)
    assert (caption.familiarity, caption.confidence) == (None, None)
    other = write_run(tmp_path / "run", hidden_dim=4)
    RunFolder(other).familiarity.write_bytes(RunFolder(limited).familiarity.read_bytes())
    with pytest.raises(RunError, match="of other weights"):
        sat_tf.load(other)
    assert Limits().files(["a"], ["b"]) == {}
