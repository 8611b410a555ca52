"""Every recipe is one the command line and the run folder can hold."""

from __future__ import annotations

import json

import pytest

from sat_tf.config import from_dict, to_dict
from training.recipes import RECIPES, RunConfig, recipe
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
