"""A run is trained once, keeps its best epoch, and is the same on two devices."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

import sat_tf
from sat_tf import runs, weights
from sat_tf.run_folder import RunFolder
from tests.training.run_state.stopped_runs import (
    Killed,
    assert_same,
    die_after,
    last_checkpoint,
    weights_of,
)
from tests.training.small_runs import check_run_dir, make_task, record_models, train
from training.data.sources.scenes import load as load_scenes
from training.distributed.strategies import make_strategy
from training.loop import fit as fit_module
from training.loop.callbacks import CheckpointAndStop
from training.recipes.captioning import RECIPES
from training.tasks.captioning.task import CaptioningTask


def test_a_finished_run_is_not_trained_again(soft_run, tiny, monkeypatch):
    monkeypatch.setattr(keras.Model, "fit", lambda *_, **__: pytest.fail("trained"))
    before = RunFolder(soft_run).best_weights.stat().st_mtime_ns
    found = train(soft_run, *tiny, "--fit.epochs", "2")
    assert found.caption(np.zeros([64, 64, 3], np.uint8)).words
    assert RunFolder(soft_run).best_weights.stat().st_mtime_ns == before


def test_a_finished_run_resumes_for_more_epochs(soft_run, tmp_path, tiny, unvalidated):
    run_dir = shutil.copytree(soft_run, tmp_path / "run")
    assert last_checkpoint(run_dir)[1]["epoch"] == 2
    train(run_dir, *tiny, "--fit.epochs", "3")
    assert last_checkpoint(run_dir)[1]["epoch"] == 3
    assert json.loads(RunFolder(run_dir).config.read_text())["fit"]["epochs"] == 3


def test_early_stopping_keeps_the_best_epoch_and_leaves_nothing_to_train(
    tmp_path, tiny, monkeypatch
):
    # At this rate no weight moves, so no later epoch is better.
    flags = ("--fit.epochs", "9", "--fit.patience", "1", "--fit.monitor", "nll")
    flags += ("--recipe", "scenes_none", "--optimizer.learning_rate", "1e-30")
    train(tmp_path / "run", *tiny, *flags)
    _, state = last_checkpoint(tmp_path / "run")
    assert (state["epoch"], state["best_epoch"], state["stopped"]) == (2, 1, True)
    monkeypatch.setattr(keras.Model, "fit", lambda *_, **__: pytest.fail("trained"))
    said = []
    train(tmp_path / "run", *tiny, *flags, say=said.append)
    assert "Finished before, after 2 epochs: nothing left to train." in said
    assert any("Best epoch 1 of 2" in line for line in said)


def test_the_best_weights_are_those_of_the_best_epoch(tmp_path, tiny, monkeypatch):
    scores = iter([2.0, 1.0])

    def validate(self, epoch, logs=None):
        logs["val_bleu_4"] = next(scores)

    monkeypatch.setattr(fit_module.Validate, "on_epoch_end", validate)
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


def test_a_run_that_never_had_a_score_says_what_happened(tmp_path, tiny, monkeypatch):
    def validate(self, epoch, logs=None):
        logs["val_nll"] = float("nan")

    monkeypatch.setattr(fit_module.Validate, "on_epoch_end", validate)
    flags = (*tiny, "--recipe", "scenes_none", "--fit.monitor", "nll")
    with pytest.raises(runs.RunError, match="`nll` was never a number, in 1 epoch\\."):
        train(tmp_path / "run", *flags)


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


@pytest.mark.slow
def test_bfloat16_trains_and_its_run_loads_in_float32(tmp_path, tiny, monkeypatch):
    flags = (*tiny, "--fit.precision", "bfloat16", "--data.limit", "4")
    models = record_models(monkeypatch, CaptioningTask)
    found = train(tmp_path / "run", *flags)
    image = np.full([64, 64, 3], 99, np.uint8)
    assert models[0].decoder.embedding.compute_dtype == "bfloat16"
    loaded = sat_tf.load(tmp_path / "run")
    np.testing.assert_array_equal(kernel(found.model), kernel(loaded.model))
    assert kernel(loaded.model).dtype == np.float32
    assert loaded.caption(image).words


def test_a_run_that_could_not_start_leaves_its_folder_free(tmp_path):
    run_dir = tmp_path / "run"
    missing = ("--encoder.weights", "missing.h5", "--data.limit", "4")
    for flags in (("--recipe", "flickr8k_soft"), missing):
        with pytest.raises(ValueError, match="--data-dir|--encoder.weights"):
            train(run_dir, *flags)
        check_run_dir(make_task(run_dir, "--recipe", "scenes_none"))


def test_the_vocabulary_sees_training_captions_only(tmp_path, make_photographs):
    folder = make_photographs(tmp_path / "flickr8k")
    flags = ("--recipe", "flickr8k_soft", "--data.min_count", "1")
    words = make_task(tmp_path, *flags, data_dir=folder).load_data().vocabulary.words
    assert "trainword" in words and not {"devword", "testword"} & set(words)


def test_the_drawn_dev_images_are_not_trained_on():
    train, dev = load_scenes("train", count=50), load_scenes("dev", count=50)
    known = {example.image.tobytes() for example in train.examples}
    assert not any(example.image.tobytes() in known for example in dev.examples)


def test_an_unreadable_image_is_skipped_named_and_counted(photographs):
    reasons = json.loads((photographs.run_dir / "skipped_train.json").read_text())
    assert list(reasons) == ["train4.jpg"] and reasons["train4.jpg"]
    assert "Warning: skipped 1 image of the train split, see " in photographs.output
    assert not (photographs.run_dir / "skipped_dev.json").exists()
    assert not any(photographs.data_dir.glob("features*"))
    assert len(list((photographs.cache_dir / "features").iterdir())) == 2


def test_the_start_of_a_run_tells_the_effective_lambda(photographs):
    weight = RECIPES["flickr8k_vgg19_soft"].attention.penalty_weight
    assert f"doubly stochastic lambda per caption: {weight}\n" in photographs.output
