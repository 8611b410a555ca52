"""The training command: flags, errors, and everything a run leaves behind."""

import json
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from sat_tf.inference import weights
from sat_tf.inference.run_folder import RunFolder
from tests.training.run.stopped_runs import (
    Killed,
    assert_same,
    die_after,
    last_checkpoint,
    weights_of,
)
from tests.training.small_runs import check_run_dir, exit_of, report_of, train
from training.evaluation.validation import Validation
from training.run.logs import Validate
from training.run.resume import CheckpointAndStop
from training.run.strategy import make_strategy
from training.train import main, parse


def test_any_key_is_a_flag_nested_ones_with_dots():
    flags = "--seed 7 --encoder.name mobilenet_v2 --encoder.weights a.h5 --data.min_count 3"
    flags += " --optimizer.learning-rate 0.5 --encoder.trainable False --data.mirror True"
    config = parse(flags.split()).config
    assert (config.seed, config.data.min_count, config.optimizer.learning_rate) == (7, 3, 0.5)
    assert (config.encoder.name, config.encoder.weights) == ("mobilenet_v2", "a.h5")
    assert (config.encoder.trainable, config.data.mirror) == (False, True)


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        ("--fit.epohcs 3", "--fit.epohcs"),
        ("--decoder.hidden_dim wide", "--decoder.hidden"),
        ("--attention.kind medium", "--attention.kind"),
        ("--fit.epochs 0", "`--fit.epochs`"),
        ("--seed -1", "`--seed`"),
        ("--optimizer.weight_decay 0.1", "expected none with `--optimizer.name adam`"),
        ("--reward.metric cider", "`--init-from`"),
        ("--reward.metric cider --init-from run --fit.jit_compile True", "`--fit.jit_compile`"),
        ("--recipe folder_soft --attention.supervision_weight 1", "`--attention.teacher`"),
        ("--attention.supervision_weight 1 --attention.teacher nowhere", "`--attention.teacher`"),
        (
            "--fit.jit_compile True --fit.batch_by image",
            "expected False with `--fit.batch_by image`",
        ),
        ("--data.random_crop 0.1 --encoder.trainable False", "expected 0.0 for a frozen encoder"),
        ("--fit.predictions p.npz", "`--fit.distillation_weight`"),
        ("--fit.distillation_weight 0.5 --fit.predictions nowhere", "`--fit.predictions`"),
        (
            "--fit.distillation_weight 1 --reward.metric cider --init-from runs",
            "`--fit.distillation_weight`: expected 0 with `--reward.metric`",
        ),
        ("--strategy multi_worker --fit.jit_compile True", "`--fit.jit_compile`"),
        ("--encoder.weights imagenet", "none or a file: scenes_cnn has no ImageNet weights"),
        ("--strategy multi_worker --fit.precision auto", "`--fit.precision`"),
        ("extra", "extra"),
    ],
)
def test_an_unknown_key_or_wrong_value_is_an_error_that_names_it(capsys, monkeypatch, argv, named):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    status, message = exit_of(capsys, main, *argv.split())
    assert status == 2 and named in message and "Traceback" not in message


@pytest.mark.parametrize(
    "flags",
    [
        "--recipe folder_soft --data-dir nowhere",
        "--fit.epochs 0",
        "--encoder.name resnet5",
        "--encoder.name keras_hub:vit_base_patch16_224_imagenet --encoder.image-size 200",
        "--encoder.image-size 65",
        "--encoder.layer conv6",
        "--encoder.trainable-from conv6",
        "--encoder.name scenes_cnn+vgg19 --encoder.layer conv5 --encoder.weights none",
    ],
)
def test_a_wrong_path_or_value_is_answered_without_loading_tensorflow(flags):
    code = f"import sys, training.train as t; s = t.main({flags.split()})\n"
    code += "sys.exit(9 if 'tensorflow' in sys.modules else s)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 2


# Whole runs.


@pytest.mark.parametrize("kind", ["soft", "hard", "none"])
def test_a_run_leaves_its_files_and_report(request, kind):
    run = request.getfixturevalue(f"{kind}_run")
    evaluation = run / "evaluation" / "dev"
    for path in ("config.json", "vocabulary.json", "best.weights.h5", "logs/train"):
        assert (run / path).exists(), path
    for path in ("report.json", "captions.json", "index.html"):
        assert (evaluation / path).stat().st_size > 100, path
    assert (evaluation / "index.html").read_text("utf-8").count("data:image") >= 12
    assert len(list((run / "checkpoints").iterdir())) == 1
    assert json.loads((run / "config.json").read_text())["attention"]["kind"] == kind

    report = report_of(evaluation)
    assert report["recipe"] == f"scenes_{kind}" and report["seed"] == 0
    assert report["split"] == "dev" and len(report["split_fingerprint"]) == 64
    assert report["search"]["beam"] == 2 and report["images"] == 12
    assert report["tokeniser"] == "ptb" and "tok:ptb-" in report["signature"]
    assert all(seconds >= 0 for seconds in report["seconds"].values())
    assert {"tensorflow", "keras", "numpy", "python"} <= set(report["versions"])
    scores = report["scores"]
    wanted = {f"bleu_{n}{form}" for n in (1, 2, 3, 4) for form in ("", "_no_bp")}
    wanted |= {"brevity_ratio", "cider", "rouge_l", "nll", "perplexity"}
    grounded = {"pointing_game", "attention_correctness", "pointing_game_uniform"}
    assert wanted <= set(scores)
    assert (grounded <= set(scores)) is (kind != "none")
    assert all(value is None or np.isfinite(value) for value in scores.values())
    captions = json.loads((evaluation / "captions.json").read_text())
    assert len(captions) == 12 and all(row["caption"] for row in captions)


def test_supervised_attention_learns_the_boxes(tmp_path, tiny, unvalidated):
    seen = []
    logged = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs))
    flags = ["--recipe", "scenes_hard", "--attention.supervision-weight", "5"]
    train(tmp_path / "run", *tiny, *flags, "--fit.epochs", "3", callbacks=(logged,))
    nats = [logs["supervision"] for logs in seen]
    assert 0 < nats[-1] < nats[0]
    assert "boxes" in json.loads((tmp_path / "run" / "data.json").read_text())


def test_a_finished_run_is_not_trained_again(soft_run, tiny, monkeypatch):
    monkeypatch.setattr(keras.Model, "fit", lambda *_, **__: pytest.fail("trained"))
    before = RunFolder(soft_run).best_weights.stat().st_mtime_ns
    found = train(soft_run, *tiny, "--fit.epochs", "2")
    assert found.caption(np.zeros([64, 64, 3], np.uint8)).words
    assert RunFolder(soft_run).best_weights.stat().st_mtime_ns == before


def test_the_best_weights_are_those_of_the_best_epoch(tmp_path, tiny, monkeypatch):
    scores = iter([2.0, 1.0])

    def validate(self, epoch, logs=None):
        logs["val_bleu_4"] = next(scores)

    monkeypatch.setattr(Validate, "on_epoch_end", validate)
    saved = []
    save_weights = weights.save_weights
    monkeypatch.setattr(
        weights, "save_weights", lambda m, path: (saved.append(kernel(m)), save_weights(m, path))
    )
    flags = (*tiny, "--recipe", "scenes_none", "--fit.epochs", "2")
    found = train(tmp_path / "run", *flags)
    assert len(saved) == 1
    np.testing.assert_array_equal(kernel(found.model), saved[0])
    state = last_checkpoint(tmp_path / "run")[1]
    assert (state["epoch"], state["best_epoch"], state["best_score"]) == (2, 1, 2.0)


def kernel(model) -> np.ndarray:
    return np.asarray(model.decoder.deep_output.word_projection.kernel)


def losses(run_dir: Path, strategy, *flags: str) -> list[float]:
    """The loss and dev NLL of every epoch."""
    found = []

    def record(epoch, logs):
        found.extend((logs["loss"], logs["gradient_norm"], logs["val_nll"]))

    recorder = keras.callbacks.LambdaCallback(on_epoch_end=record)
    train(run_dir, *flags, strategy=strategy, callbacks=(recorder,))
    return found


@pytest.mark.slow
def test_two_devices_that_resume_give_the_losses_of_one(tmp_path, tiny, fine_tuned, monkeypatch):
    # A search is of one device; what is searched is not compared.
    monkeypatch.setattr(Validation, "caption_scores", lambda _: {"bleu_4": 1.0})
    flags = (*tiny, *fine_tuned, "--data.limit", "40")
    one = losses(tmp_path / "one", None, *flags)
    often, strategy = (*flags, "--fit.checkpoint_steps", "2"), make_strategy("mirrored")
    with monkeypatch.context() as patch:
        die_after(patch, CheckpointAndStop, "on_train_batch_end", 3)
        with pytest.raises(Killed):
            losses(tmp_path / "two", strategy, *often)
    two = losses(tmp_path / "two", strategy, *often)
    np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-4)
    close = lambda a, b, err_msg: np.testing.assert_allclose(a, b, atol=2e-3, err_msg=err_msg)  # noqa: E731
    assert_same(weights_of(tmp_path / "one"), weights_of(tmp_path / "two"), close)


def test_a_run_that_could_not_start_leaves_its_folder_free(tmp_path):
    run_dir = tmp_path / "run"
    missing = ("--encoder.weights", "missing.h5", "--data.limit", "4")
    for flags in (("--recipe", "flickr8k_soft"), missing):
        with pytest.raises(ValueError, match="--data-dir|--encoder.weights"):
            train(run_dir, *flags)
        check_run_dir(run_dir, "--recipe", "scenes_none")
