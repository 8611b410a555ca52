"""Every recipe is one the command line and the run folder can hold."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from sat_tf.fields import from_dict, to_dict
from training.cli import check_init_from
from training.config import DataConfig, FitConfig, OptimizerConfig, RunConfig
from training.recipes import RECIPES
from training.train import parse

THREE = ["scenes", "flickr8k", "flickr8k_vgg19"]
TWO = ["flickr30k", "coco", "folder"]
NAMES = [f"{data}_{kind}" for data in THREE for kind in ("soft", "hard", "none")]
NAMES += [f"{data}_{kind}" for data in TWO for kind in ("soft", "hard")]


def test_the_recipes_are_those_promised():
    assert list(RECIPES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_survives_json_and_the_command_line(name):
    text = json.dumps(to_dict(RECIPES[name]))
    assert from_dict(RunConfig, json.loads(text)) == RECIPES[name]
    assert parse(["--recipe", name]).config == RECIPES[name]


@pytest.mark.parametrize("data", [*THREE, *TWO])
def test_kinds_of_attention_get_the_same_data_budget_and_search(data):
    soft = RECIPES[f"{data}_soft"]

    def shared(name, config):
        decoder, fit = config.decoder, config.fit
        if name.endswith("_hard"):
            # Drawn locations are noise: drawn scenes take longer to learn from, and photographs
            # need less dropout beside it.
            drops = {
                k: getattr(soft.decoder, k) for k in ("annotation_dropout", "embedding_dropout")
            }
            assert all(getattr(decoder, name) <= most for name, most in drops.items())
            decoder = dataclasses.replace(decoder, **drops)
        if name == "scenes_hard":
            fit = dataclasses.replace(fit, epochs=soft.fit.epochs)
        optimizer = config.optimizer
        if config.init_from:  # a shorter run, from the soft one
            assert config.init_from == f"runs/{data}_soft" and name.endswith("_hard")
            assert fit.epochs < soft.fit.epochs
            fit, optimizer = dataclasses.replace(fit, epochs=soft.fit.epochs), soft.optimizer
        return (
            config.data,
            config.encoder,
            decoder,
            optimizer,
            fit,
            config.search,
            config.seed,
        )

    names = [name for name in RECIPES if name.rsplit("_", 1)[0] == data]
    parts = [shared(name, RECIPES[name]) for name in names]
    assert len(parts) > 1 and all(part == parts[0] for part in parts)


def test_hard_attention_over_a_narrow_layer_starts_from_soft():
    for name, config in RECIPES.items():
        narrow_and_hard = bool(config.decoder.bottleneck_dim) and name.endswith("_hard")
        assert (config.init_from is not None) == narrow_and_hard


def test_the_run_to_start_from_has_to_be_trained_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = parse(["--recipe", "flickr8k_hard"]).config
    with pytest.raises(ValueError, match="`--init-from`: .*train `--recipe flickr8k_soft` with"):
        check_init_from(config, Path("runs/flickr8k_hard"))
    (tmp_path / "runs" / "flickr8k_soft").mkdir(parents=True)
    check_init_from(config, Path("runs/flickr8k_hard"))


@pytest.mark.parametrize("name", ["flickr30k_soft", "flickr30k_hard", "coco_soft", "coco_hard"])
def test_the_larger_data_sets_have_the_papers_settings(name):
    config = RECIPES[name]
    assert (config.encoder.name, config.encoder.layer, config.encoder.trainable) == (
        "vgg19",
        None,
        False,
    )
    assert config.data.vocabulary_size == 10_000 and config.data.min_count == 1
    assert config.optimizer.name == "adam"


@pytest.mark.parametrize("language", ["en", "de", "zh-Hans", "yue"])
def test_a_language_is_a_code(language):
    assert DataConfig(language=language).language == language
    with pytest.raises(ValueError, match="`--data.language`: expected a code.*'German'"):
        DataConfig(language="German")


@pytest.mark.parametrize(
    ("group", "cls", "values"),
    [
        ("data", DataConfig, {"min_count": 0}),
        ("data", DataConfig, {"random_crop": 0.6}),
        ("data", DataConfig, {"max_length": 0}),
        ("optimizer", OptimizerConfig, {"learning_rate": 0.0}),
        ("optimizer", OptimizerConfig, {"clip_norm": -5.0}),
        ("fit", FitConfig, {"batch_size": 0}),
        ("fit", FitConfig, {"label_smoothing": 1.0}),
        ("fit", FitConfig, {"figures": -1}),
    ],
)
def test_a_run_that_cannot_be_is_never_described(group, cls, values):
    (name,) = values
    with pytest.raises(ValueError, match=f"`--{group}.{name}`"):
        cls(**values)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("data.random_crop", "0.1"),
        ("optimizer.encoder_learning_rate", "1e-05"),
        ("fit.batch_by", "image"),
    ],
)
def test_what_only_a_trained_encoder_heeds_is_an_error_with_a_frozen_one(key, value, capsys):
    flags = ["--recipe", "scenes_soft", f"--{key}", value]
    parse(flags)
    with pytest.raises((SystemExit, ValueError)) as error:
        parse([*flags, "--encoder.trainable", "False"])
    said = str(error.value) + capsys.readouterr().err
    said = " ".join(said.replace("│", " ").split())
    assert f"`--{key}`: expected" in said and "for a frozen encoder" in said and value in said
