"""Captioners' predictions for the training captions, and a captioner that learns from them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from sat_tf.trained import runs
from tests.training.small_runs import exit_of, meteor_hidden
from training.config import read_run_config
from training.distill import main, predict
from training.inputs import load_data
from training.lineage import Teachers, teachers_of
from training.teach.word_predictions import WordPredictions
from training.train import main as train

SMALL = ["--data.limit", "16", "--decoder.hidden-dim", "16", "--decoder.embedding-dim", "8"]
SMALL += ["--decoder.attention-dim", "8", "--fit.epochs", "1", "--fit.figures", "1"]
SMALL += ["--fit.validation-images", "4", "--search.beam", "1"]


@pytest.fixture(scope="module")
def teachers(tmp_path_factory) -> list[str]:
    """Two runs; the second one saw mirrored images."""
    folder = tmp_path_factory.mktemp("teachers")
    with meteor_hidden():
        for name, flags in (("soft", []), ("hard", ["--data.mirror", "True", "--seed", "1"])):
            flags = [*SMALL, *flags, "--run-dir", str(folder / name)]
            assert train(["--recipe", f"scenes_{name}", *flags]) == 0
    return [str(folder / "soft"), str(folder / "hard")]


@pytest.fixture(scope="module")
def predictions(teachers, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("predictions") / "new" / "p.npz"
    assert main([*teachers, "--out", str(path)]) == 0
    return str(path)


def probabilities(run_dir, image, tokens) -> np.ndarray:
    """Probabilities `[T, K]` of the words of one caption, without a batch around it."""
    trained = runs.load_captioner(run_dir)
    batch = {"images": image[None], "tokens": tokens[None]}
    logits = trained.model(batch, selection="expectation").logits[0].numpy()
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.slow
def test_predictions_are_the_mean_over_runs_and_views(teachers, predictions):
    config = read_run_config(teachers[0])
    data = load_data(config.data)
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


@pytest.mark.slow
def test_a_student_learns_from_predictions_and_resumes(teachers, predictions, tmp_path, capsys):
    base = ["--recipe", "scenes_soft", *SMALL, "--run-dir", str(tmp_path / "student")]
    flags = [*base, "--fit.distillation-weight", "0.5"]
    with meteor_hidden():
        assert train([*flags, "--fit.predictions", predictions]) == 0
    assert "predictions are 50 % of each word's target" in capsys.readouterr().out
    contents = json.loads((tmp_path / "student" / "data.json").read_text())
    assert contents["predictions"]["teachers"] == []

    config = read_run_config(teachers[0])
    data = load_data(config.data)
    predict({Path(teachers[0]): config}, data, tmp_path / "cache", 5).save(tmp_path / "others.npz")
    assert train([*flags, "--fit.predictions", str(tmp_path / "others.npz")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "The predictions of other captioners are not those of the training split" in said


@pytest.mark.slow
def test_runs_with_other_words_teach_nothing(teachers, tmp_path, capsys):
    vocabulary = json.loads((runs.RunFolder(teachers[0]).vocabulary).read_text())
    folder = tmp_path / "other"
    folder.mkdir()
    source = runs.RunFolder(teachers[0])
    for path in (source.config, source.best_weights):
        (folder / path.name).write_bytes(path.read_bytes())
    vocabulary["words"][-1] = "other"
    (folder / source.vocabulary.name).write_text(json.dumps(vocabulary))
    status, said = exit_of(capsys, main, teachers[0], folder, "--out", tmp_path / "p.npz")
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
        (["ram_28"], "digit"),
    ],
)
def test_a_wrong_argument_is_an_error_that_names_it(capsys, argv, named):
    status, said = exit_of(capsys, main, *argv)
    assert status == 2 and named in said


@pytest.mark.slow
def test_a_student_inherits_the_teachers_of_its_teachers(teachers, tmp_path):
    student, boxed, folder = (tmp_path / name for name in ("student", "boxed", "rewarded"))
    for run, changes in (
        (boxed, {"attention": {"kind": "soft", "supervision_weight": 0.5}}),
        (folder, {"reward": {"metric": "cider"}, "init_from": str(boxed)}),
    ):
        shutil.copytree(teachers[0], run)
        values = json.loads((run / "config.json").read_text())
        (run / "config.json").write_text(json.dumps(values | changes))
    assert teachers_of(folder) == Teachers(("boxes", "reward"), ())
    predictions = tmp_path / "p.npz"
    assert main([str(folder), teachers[1], "--out", str(predictions)]) == 0
    base = ["--recipe", "scenes_soft", *SMALL, "--run-dir", str(student)]
    with meteor_hidden():
        given = ["--fit.distillation-weight", "0.5", "--fit.predictions", str(predictions)]
        assert train([*base, *given]) == 0
    assert teachers_of(student) == Teachers(("captioners",), ("boxes", "reward"))
