"""Every recipe is one the command line and the run folder can hold."""

from __future__ import annotations

import json

import pytest

from sat_tf.config import from_dict, to_dict
from training.recipes import RECIPES, DataConfig, FitConfig, OptimizerConfig, RunConfig, recipe
from training.train import parse

NAMES = [f"{data}_{kind}" for data in ("scenes", "flickr8k") for kind in ("soft", "hard", "none")]


def test_the_recipes_are_those_promised():
    assert list(RECIPES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_what_its_name_says(name):
    data, kind = name.split("_")
    config = recipe(name)
    assert (config.recipe, config.data.name, config.attention.kind) == (name, data, kind)


@pytest.mark.parametrize("name", NAMES)
def test_the_command_line_gives_the_recipe_unchanged(name):
    assert parse(["--recipe", name]).config == RECIPES[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_survives_json(name):
    text = json.dumps(to_dict(RECIPES[name]))
    assert from_dict(RunConfig, json.loads(text)) == RECIPES[name]


@pytest.mark.parametrize("data", ["scenes", "flickr8k"])
def test_kinds_of_attention_get_the_same_data_budget_and_search(data):
    parts = [
        (c.data, c.encoder, c.decoder, c.optimizer, c.fit, c.search, c.seed)
        for c in (recipe(f"{data}_{kind}") for kind in ("soft", "hard", "none"))
    ]
    assert parts[0] == parts[1] == parts[2]


def test_an_unknown_recipe_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"`--recipe`: expected one of scenes_soft.*'nothing'"):
        recipe("nothing")


@pytest.mark.parametrize(
    ("group", "cls", "values"),
    [
        ("data", DataConfig, {"min_count": 0}),
        ("data", DataConfig, {"vocabulary_size": 0}),
        ("data", DataConfig, {"max_length": 0}),
        ("data", DataConfig, {"seed": -1}),
        ("data", DataConfig, {"limit": 0}),
        ("optimizer", OptimizerConfig, {"learning_rate": 0.0}),
        ("optimizer", OptimizerConfig, {"warmup_epochs": -1.0}),
        ("optimizer", OptimizerConfig, {"weight_decay": -0.1}),
        ("optimizer", OptimizerConfig, {"clip_norm": -5.0}),
        ("fit", FitConfig, {"epochs": 0}),
        ("fit", FitConfig, {"batch_size": 0}),
        ("fit", FitConfig, {"label_smoothing": 1.0}),
        ("fit", FitConfig, {"patience": 0}),
        ("fit", FitConfig, {"validation_beam": 0}),
        ("fit", FitConfig, {"validation_images": 0}),
        ("fit", FitConfig, {"pictures": -1}),
    ],
)
def test_a_run_that_cannot_be_is_never_described(group, cls, values):
    (name,) = values
    with pytest.raises(ValueError, match=f"`--{group}.{name}`"):
        cls(**values)


def test_a_seed_below_zero_is_an_error():
    with pytest.raises(ValueError, match="`--seed`"):
        RunConfig(seed=-1)
