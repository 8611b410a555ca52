"""Configurations as runs keep them."""

import json

import pytest

from sat_tf.inference.run_folder import read_config
from sat_tf.util.errors import RunError
from sat_tf.util.fields import to_dict
from tests.training.small_runs import check_run_dir
from training.run.config import read_run_config, to_text
from training.train import parse


def test_a_configuration_of_another_version_is_refused_with_what_to_do(tmp_path):
    values = to_dict(parse(["--recipe", "scenes_soft"]).config)
    values["fit"]["pictures"] = values["fit"].pop("figures")
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(RunError, match=r"config\.json .*`fit.pictures`.*train the run again"):
        read_run_config(tmp_path)


@pytest.mark.parametrize("text", ["[]", "5", "null", "{", "\xff"])
def test_a_damaged_configuration_is_an_error_that_names_the_file(tmp_path, text):
    (tmp_path / "config.json").write_text(text, "latin-1")
    with pytest.raises(RunError, match=r"Cannot read .*config\.json: "):
        read_run_config(tmp_path)


def test_a_teacher_is_recorded_and_may_be_moved_but_is_no_part_of_the_captioner(tmp_path):
    flags = ("--attention.supervision_weight", "1", "--attention.teacher")
    old, new = (tmp_path / name for name in ("old.jsonl", "new.jsonl"))
    old.touch(), new.touch()
    config = parse([*flags, str(old)]).config
    (tmp_path / "config.json").write_text(to_text(config))
    assert read_run_config(tmp_path).attention.teacher == str(old)
    check_run_dir(tmp_path, *flags, str(new))
    assert read_config(tmp_path) == config.captioner == parse([*flags, str(new)]).config.captioner
    with pytest.raises(RunError, match="`attention.supervision_weight` is 1.0 there and 0.0 here"):
        check_run_dir(tmp_path)
