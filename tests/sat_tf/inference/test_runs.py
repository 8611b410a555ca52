"""From a run's folder to captions: saved values return, or a clear error; forms of images."""

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import sat_tf
from sat_tf.config import SearchConfig
from sat_tf.inference import load as runs
from sat_tf.inference import weights
from sat_tf.inference.run_folder import RunFolder
from sat_tf.text.vocabulary import END, START
from tests.full_disk import full_disk
from tests.sat_tf.tiny_runs import PIXELS, png, write_run


@pytest.fixture
def copy(run_of, tmp_path) -> RunFolder:
    return RunFolder(shutil.copytree(run_of["soft"], tmp_path / "run"))


def test_a_run_loads_without_the_weights_file_of_its_encoder(run_of, loaded):
    again = sat_tf.load(str(run_of["soft"]))
    assert again.path == run_of["soft"] and not Path("gone.weights.h5").exists()
    mine, theirs = again.caption(PIXELS), loaded["soft"].caption(PIXELS)
    assert mine.text == theirs.text and mine.score == pytest.approx(theirs.score)
    shown = f"KerasCaptioner({str(run_of['soft'])!r}, soft attention over scenes_cnn at "
    assert repr(again).startswith(shown) and repr(again).endswith(" words)")


def test_a_full_disk_is_a_clear_error_and_leaves_the_old_weights(copy, loaded):
    old = (copy.best_weights).read_bytes()
    message = "best.weights.h5: File too large.*make room"
    with full_disk(), pytest.raises(runs.RunError, match=message):
        weights.save_weights(loaded["soft"].model, copy.best_weights)
    assert (copy.best_weights).read_bytes() == old
    assert len(list(copy.path.iterdir())) == 3


def test_a_folder_that_is_no_run_is_an_error(tmp_path):
    with pytest.raises(runs.RunError, match="is not a run: it has no config.json"):
        sat_tf.load(tmp_path)
    with pytest.raises(runs.RunError, match="no run folder .*nowhere, and no pretrained"):
        sat_tf.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("missing", "said"),
    [("best.weights.h5", "has not finished an epoch"), ("vocabulary.json", "vocabulary.json")],
)
def test_a_run_without_weights_or_vocabulary_is_an_error(copy, missing, said):
    (copy.path / missing).unlink()
    with pytest.raises(runs.RunError, match=said):
        sat_tf.load(copy)
    if missing == "best.weights.h5":
        (copy.checkpoints / "epoch-002").mkdir(parents=True)
        with pytest.raises(runs.RunError, match="has finished an epoch: the file is gone"):
            sat_tf.load(copy)


@pytest.mark.parametrize("name", ["config.json", "vocabulary.json"])
@pytest.mark.parametrize("text", ["{", "[]", '{"encoder": {"colour": 1}}'])
def test_a_damaged_file_is_an_error_that_names_it(copy, name, text):
    (copy.path / name).write_text(text)
    with pytest.raises(runs.RunError, match=name):
        sat_tf.load(copy)


def test_a_configuration_of_another_version_says_what_to_do(copy):
    changed = copy.config.read_text().replace('"kind"', '"kindness"')
    copy.config.write_text(changed)
    with pytest.raises(runs.RunError, match="this version: .*`attention.kindness`.*train the run"):
        sat_tf.load(copy)


def test_weights_of_another_model_and_those_cut_short_are_errors(run_of, copy, tmp_path):
    whole = copy.best_weights.read_bytes()
    narrow = RunFolder(write_run(tmp_path / "narrow", hidden_dim=5)).best_weights.read_bytes()
    none = RunFolder(run_of["none"]).best_weights.read_bytes()
    for content in (narrow, none, b"", whole[:9000]):
        copy.best_weights.write_bytes(content)
        with pytest.raises(runs.RunError, match="do not fit"):
            sat_tf.load(copy)


def test_a_captioner_names_the_weights_it_was_loaded_from_when_training_replaces_them(copy):
    before = hashlib.sha256(copy.best_weights.read_bytes()).hexdigest()
    captioner = sat_tf.load(copy)
    copy.best_weights.write_bytes(b"those of the next epoch")
    assert captioner.weights_sha256 == before != copy.weights_sha256()


def test_a_caption_has_words_a_score_and_an_attention_map_per_word(loaded):
    found = loaded["hard"].caption(PIXELS)
    length = len(found.words)
    assert 1 <= length <= 5 and found.text == " ".join(found.words) and found.score < 0
    assert found.alpha.shape == (length, 4, 4) and found.beta.shape == (length,)
    np.testing.assert_allclose(found.alpha.sum((1, 2)), 1.0, atol=1e-5)
    assert ((found.beta > 0) & (found.beta < 1)).all()
    without = loaded["none"].caption(PIXELS)
    assert without.words and without.alpha is None and without.beta is None
    found = loaded["soft"].caption(PIXELS)
    scores = [found.score, *(score for _, score in found.alternatives)]
    texts = [found.text, *(text for text, _ in found.alternatives)]
    assert scores == sorted(scores, reverse=True) and len(set(texts)) == len(texts) == 3


def test_log_probs_are_the_models_for_each_word_and_sum_to_that_of_the_caption(loaded):
    search = SearchConfig(beam=3, max_length=2, length_power=1.0)
    cut = loaded["soft"].caption(PIXELS, search)
    assert cut.log_probs.dtype == np.float32 and cut.log_probs.shape == (len(cut.words),)
    assert len(cut.words) == 2, "longer captions exist, so this one was cut before its end"
    assert cut.log_probs.sum() == pytest.approx(cut.log_prob, rel=1e-5)
    assert cut.score == pytest.approx(cut.log_prob / 2, rel=1e-5)
    captioner = loaded["soft"]
    caption = captioner.caption(PIXELS)
    ids = [START, *(captioner.vocabulary.id(word) for word in caption.words), END]
    annotations = captioner.annotate(captioner.pixels(PIXELS)[None])
    logits = captioner.model({"annotations": annotations, "tokens": np.array([ids])}).logits
    log_probs = tf.nn.log_softmax(logits)[0].numpy()
    count = len(caption.words)
    expected = log_probs[np.arange(count), ids[1 : count + 1]]
    np.testing.assert_allclose(caption.log_probs, expected, atol=1e-5)


def test_pixels_of_another_size_are_an_error_that_says_which(loaded):
    captioner = loaded["soft"]
    side = captioner.config.encoder.image_size
    for other in (side + 1, side + 2):
        pixels = np.zeros([1, other, other, 3])
        with pytest.raises(ValueError, match=rf"`images`: .*got \(1, {other}, {other}, 3\)\.$"):
            captioner.annotate(pixels)
    assert captioner.annotate(np.zeros([1, side, side, 3])).shape[0] == 1


def test_an_image_gets_one_caption_in_every_form_and_in_a_batch(loaded, tmp_path):
    (tmp_path / "a.png").write_bytes(png())
    forms = [PIXELS, Image.fromarray(PIXELS), png(), tmp_path / "a.png", str(tmp_path / "a.png")]
    found = [loaded["soft"].caption(form) for form in forms]
    assert len({caption.text for caption in found}) == 1
    np.testing.assert_allclose([c.score for c in found], found[0].score, atol=1e-4)
    images = [PIXELS, PIXELS[::-1].copy(), 255 - PIXELS]
    together = loaded["soft"].caption(images)
    for image, caption in zip(images, together, strict=True):
        alone = loaded["soft"].caption(image)
        assert alone.text == caption.text and alone.score == pytest.approx(caption.score, abs=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda c: c.caption(bytearray(png())),
            "`image`: expected .* Image, got bytearray",
        ),
        (lambda c: c.caption(None), "`image`: expected str or .* Image, got None"),
        (lambda c: c.caption(iter([PIXELS])), "`image`: expected str or .* Image, got <list"),
        (lambda c: c.captions(3), "`images`: expected Iterable, got 3"),
        (lambda c: c.caption(PIXELS, {"beam": 1}), "`search`: expected SearchConfig or None, got"),
        (
            lambda c: c.describe(np.zeros([1, 49, 7])),
            r"`annotations`: expected shape \[B, \d+, 32\]",
        ),
        (lambda _: sat_tf.load(None), "`run_dir`: expected str or Path, got None"),
    ],
)
def test_an_argument_of_another_type_is_an_error_that_names_it(loaded, call, message):
    with pytest.raises(ValueError, match=f"invalid value for argument {message}"):
        call(loaded["soft"])
