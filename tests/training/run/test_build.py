"""The model of a run: weights of another run, and the precision."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import sat_tf
from sat_tf.captioner import Captioner
from sat_tf.inference.keras_captioner import KerasCaptioner
from sat_tf.inference.run_folder import read_config, read_vocabulary
from sat_tf.layers.encoder import scenes_cnn
from sat_tf.text.vocabulary import Vocabulary
from sat_tf.util.fields import to_dict
from tests.training.run.stopped_runs import weights_of
from tests.training.small_runs import record_models, train
from training.run.decide import resolve
from training.run.first_weights import start_from
from training.run.recipes import RECIPES
from training.train import parse


def model_like(run_dir: Path, words: int | None = None, **decoder) -> Captioner:
    config = read_config(run_dir)
    changed = dataclasses.replace(config.decoder, **decoder)
    words = words or len(read_vocabulary(run_dir))
    return Captioner(dataclasses.replace(config, decoder=changed), words)


def test_a_run_of_other_shapes_encoder_or_words_is_an_error_that_names_one(soft_run):
    words = read_vocabulary(soft_run)
    with pytest.raises(ValueError, match=r"`--init-from`.*8 x 64, this one .*"):
        start_from(soft_run, model_like(soft_run, hidden_dim=17), words)
    with pytest.raises(ValueError, match=r"`--init-from`.*its decoder has \d+ weights, this"):
        start_from(soft_run, model_like(soft_run, initial_layers=2), words)

    config = read_config(soft_run)
    encoder = dataclasses.replace(config.encoder, name="mobilenet_v2", image_size=32)
    model = Captioner(dataclasses.replace(config, encoder=encoder), len(words))
    with pytest.raises(ValueError, match="its encoder is scenes_cnn, this one's mobilenet_v2"):
        start_from(soft_run, model, words)
    more = Vocabulary.from_captions([*words.words[4:], "zebra"], min_count=1)
    with pytest.raises(ValueError, match=r"`--init-from`.*only one has 'zebra'.*`--data.min"):
        start_from(soft_run, model_like(soft_run, len(more)), more)


def test_a_run_is_resumed_although_the_file_of_its_encoder_is_gone(tmp_path, tiny, unvalidated):
    run_dir = tmp_path / "runs[1]" / "a*"  # no pattern
    file = tmp_path / "encoder.weights.h5"
    scenes_cnn(64).save_weights(file)
    flags = (*tiny, "--recipe", "scenes_soft", "--encoder.weights", str(file))
    flags += ("--encoder.trainable", "False", "--fit.epochs")
    train(run_dir, *flags, "1")
    file.unlink()
    said = []
    train(run_dir, *flags, "2", say=said.append)
    assert any(line.startswith("Resuming at epoch 2") for line in said)
    with pytest.raises(ValueError, match="no such file"):
        train(tmp_path / "another", *flags, "1")


def test_fine_tuning_moves_the_chosen_layers_and_is_what_is_loaded(
    soft_run, tmp_path, tiny, fine_tuned, monkeypatch, unvalidated
):
    models = record_models(monkeypatch)
    flags = (*tiny, *fine_tuned, "--init-from", str(soft_run))
    flags += ("--optimizer.warmup_epochs", "0", "--optimizer.encoder_learning_rate", "1e-6")
    flags += ("--encoder.weights", "gone.weights.h5")  # the run has them
    said = []
    train(tmp_path / "run", *flags, say=said.append)
    assert any("trained from conv4 (0.01 M weights)" in line for line in said)
    before, after = weights_of(soft_run), weights_of(tmp_path / "run")
    change = {name: np.abs(before[name] - after[name]).max() for name in before}
    encoder = [value for name, value in change.items() if name.startswith("encoder")]
    decoder = [value for name, value in change.items() if name.startswith("decoder")]
    # Six steps of Adam, each of at most about the learning rate.
    assert encoder.count(0.0) == 6 and 0 < max(encoder) < 1e-5
    assert max(decoder) > 1e-3
    images = np.random.default_rng(0).integers(0, 256, [3, 64, 64, 3], np.uint8)
    loaded = sat_tf.load(tmp_path / "run", engine="keras")
    trained = KerasCaptioner(models[0], loaded.vocabulary)
    both = (captioner.caption(list(images)) for captioner in (trained, loaded))
    for one, other in zip(*both, strict=True):
        assert (one.text, one.score) == (other.text, other.score)


# Precision.


def asking_for(name: str):
    config = RECIPES["scenes_soft"]
    return dataclasses.replace(config, fit=dataclasses.replace(config.fit, precision=name))


@pytest.mark.parametrize(
    ("capabilities", "chosen"), [([(9, 0)], "bfloat16"), ([(9, 0), (7, 0)], "float32")]
)
def test_precision_goes_by_the_device(tmp_path, monkeypatch, capsys, capabilities, chosen):
    details = lambda gpu: {"compute_capability": gpu}  # noqa: E731
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: capabilities)
    monkeypatch.setattr(tf.config.experimental, "get_device_details", details)
    assert resolve(asking_for("auto"), tmp_path, None).fit.precision == chosen
    assert f"Precision {chosen}" in capsys.readouterr().out


@pytest.mark.parametrize("kept", ["float32", "bfloat16"])
def test_a_resumed_run_keeps_its_choice(tmp_path, kept):
    (tmp_path / "config.json").write_text(json.dumps(to_dict(asking_for(kept))))
    config = parse(["--run-dir", str(tmp_path), "--fit.precision", "auto"]).config
    assert config == asking_for(kept)


def embedding(captioner) -> np.ndarray:
    return np.asarray(captioner.model.decoder.embedding.embeddings)


@pytest.mark.slow
def test_bfloat16_trains_and_its_run_loads_in_float32(tmp_path, tiny, monkeypatch):
    flags = (*tiny, "--fit.precision", "bfloat16", "--data.limit", "4")
    models = record_models(monkeypatch)
    found = train(tmp_path / "run", *flags)
    image = np.full([64, 64, 3], 99, np.uint8)
    assert models[0].decoder.embedding.compute_dtype == "bfloat16"
    loaded = sat_tf.load(tmp_path / "run", engine="keras")
    np.testing.assert_array_equal(embedding(found), embedding(loaded))
    assert embedding(loaded).dtype == np.float32
    assert loaded.caption(image).words
