"""Every recipe is one the command line and the run folder can hold."""

import json

import pytest

from sat_tf.util.fields import flat, from_dict, to_dict
from sat_tf.util.removed import removed_flag
from training.run.config import RunConfig
from training.run.decide import check_init_from
from training.run.recipes import RECIPES
from training.train import parse

THREE = ["scenes", "flickr8k", "flickr8k_vgg19"]
TWO = ["flickr30k", "coco", "folder"]
NAMES = [f"{data}_{kind}" for data in THREE for kind in ("soft", "hard", "none")]
NAMES += [f"{data}_{kind}" for data in TWO for kind in ("soft", "hard")]
NAMES.append("folder_from_flickr8k")


def test_the_recipes_are_those_promised():
    assert list(RECIPES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_survives_json_and_the_command_line(name):
    text = json.dumps(to_dict(RECIPES[name]))
    assert from_dict(RunConfig, json.loads(text)) == RECIPES[name]
    assert parse(["--recipe", name]).config == RECIPES[name]


def test_the_run_to_start_from_has_to_be_trained_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = parse(["--recipe", "flickr8k_hard"]).config
    with pytest.raises(ValueError, match="`--init-from`: .*train `--recipe flickr8k_soft` with"):
        check_init_from(config)
    first = tmp_path / "runs" / "flickr8k_soft"
    first.mkdir(parents=True)
    with pytest.raises(
        ValueError, match="`--init-from`: .*flickr8k_soft, which has no config.json"
    ):
        check_init_from(config)
    (first / "config.json").touch()
    check_init_from(config)


def test_no_setting_that_exists_counts_as_removed():
    for config in RECIPES.values():
        for key, value in flat(to_dict(config)).items():
            argv = [f"--{key}", str(value)]
            assert removed_flag(argv, "training.train") is None, argv
