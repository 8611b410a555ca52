"""Captioners' predictions for the training captions, and a captioner that learns from them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from sat_tf.inference import load as runs
from sat_tf.inference.run_folder import RunFolder
from sat_tf.util.errors import RunError
from tests.training.small_runs import exit_of, train
from training.data.inputs import load_data
from training.data.readers import Source
from training.distill import main, predict
from training.run.config import read_run_config
from training.teachers.distillation import WordPredictions


@pytest.fixture(scope="module")
def teachers(soft_run, hard_run, tmp_path_factory) -> list[Path]:
    """A run that learned from rewards and, before, from boxes; one that saw mirrored images."""
    folder = tmp_path_factory.mktemp("teachers")
    boxed, rewarded = folder / "boxed", folder / "rewarded"
    for run, changes in (
        (boxed, {"attention": {"kind": "soft", "supervision_weight": 0.5}}),
        (rewarded, {"reward": {"metric": "cider"}, "init_from": str(boxed)}),
    ):
        shutil.copytree(soft_run, run)
        values = json.loads((run / "config.json").read_text())
        (run / "config.json").write_text(json.dumps(values | changes))
    return [rewarded, hard_run]


@pytest.fixture(scope="module")
def predictions(teachers, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("predictions") / "new" / "p.npz"
    assert main([*map(str, teachers), "--out", str(path)]) == 0
    return path


def probabilities(run_dir, image, tokens) -> np.ndarray:
    """Probabilities `[T, K]` of the words of one caption, without a batch around it."""
    trained = runs.load_captioner(run_dir)
    batch = {"images": image[None], "tokens": tokens[None]}
    logits = trained.model(batch, selection="expectation").logits[0].numpy()
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def test_predictions_are_the_mean_over_runs_and_views(teachers, predictions):
    config = read_run_config(teachers[0])
    data = load_data(config.data, Source(config.data, None))
    found = WordPredictions.load(predictions, data.table, data.vocabulary)
    size = len(data.vocabulary)
    for row in (0, 37):
        tokens = data.table.tokens[row]
        image = data.train.examples[data.table.image_index[row]].image
        views = probabilities(teachers[0], image, tokens)
        views = views + probabilities(teachers[1], image, tokens)
        views = views + probabilities(teachers[1], image[:, ::-1], tokens)
        read = found.read(data.table, np.array([row]), len(tokens) + 1, None)
        words, shares = read.values()
        assert words.shape == (1, len(tokens) + 1, 20) and not shares[0, -2:].any()
        for t, expected in enumerate(views / 3):
            order = np.argsort(-expected)[:20]
            np.testing.assert_allclose(shares[0, t], expected[order], rtol=2e-3)
            whole = np.zeros(size)
            whole[words[0, t]] = shares[0, t]
            np.testing.assert_allclose(whole[order], expected[order], rtol=2e-3)


def test_a_student_learns_from_predictions(teachers, predictions, tmp_path, tiny, unvalidated):
    said = []
    flags = (*tiny, "--fit.distillation-weight", "0.5", "--fit.predictions")
    train(tmp_path / "student", *flags, str(predictions), say=said.append)
    assert any("predictions are 50 % of each word's target" in line for line in said)

    config = read_run_config(teachers[1])
    others = tmp_path / "others.npz"
    predict(
        {teachers[1]: config},
        load_data(config.data, Source(config.data, None)),
        tmp_path / "cache",
        5,
    ).save(others)
    with pytest.raises(RunError, match="The predictions data of .* differ from those"):
        train(tmp_path / "student", *flags, str(others))


def test_runs_with_other_words_teach_nothing(soft_run, tmp_path, capsys):
    other = RunFolder(shutil.copytree(soft_run, tmp_path / "other"))
    vocabulary = json.loads(other.vocabulary.read_text())
    vocabulary["words"][-1] = "other"
    other.vocabulary.write_text(json.dumps(vocabulary))
    other.data.unlink()  # its record of the vocabulary
    status, said = exit_of(capsys, main, soft_run, other.path, "--out", tmp_path / "p.npz")
    assert status == 2 and "has another vocabulary" in said


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        ([], "runs"),
        (["nowhere"], "nowhere"),
        (["flickr8k_soft", "flickr8k_soft"], "runs"),
        (["flickr8k_soft", "--out", "p.txt"], "--out"),
        (["flickr8k_soft", "--words", "0"], "--words"),
        (["flickr8k_soft", "--data-dir", "nowhere"], "nowhere"),
        (["ram_28"], "ram_28"),
    ],
)
def test_a_wrong_argument_is_an_error_that_names_it(capsys, argv, named):
    status, said = exit_of(capsys, main, *argv)
    assert status == 2 and named in said
