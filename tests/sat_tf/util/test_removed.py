"""Flags and commands of earlier versions are answered with what to do instead."""

from dataclasses import dataclass

import pytest

from sat_tf.__main__ import main
from sat_tf.util import removed
from sat_tf.util.commands import parse_flags
from sat_tf.util.fields import from_dict
from sat_tf.util.removed import removed_flag

ROWS = {
    "--data.image-shape": "give `--encoder.image-size`",
    "--data.tokens syllables": "use words",
    "--recipe old_*": "run `python -m old --recipe {value}`",
    "training.train --all": "name them",
    "sat-tf guess": "use `sat-tf inspect`",
}


@dataclass(frozen=True)
class Arguments:
    """A command."""

    recipe: str = "scenes_soft"
    """Recipe."""


@pytest.fixture(autouse=True)
def rows(monkeypatch):
    monkeypatch.setattr(removed, "REMOVED", ROWS)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--data.image_shape", "3"], "`--data.image-shape` was removed: give"),
        (["--seed", "1", "--data.image-shape=3"], "`--data.image-shape` was removed: give"),
        (["--data.tokens", "syllables"], "`--data.tokens syllables` was removed: use words."),
        (["--recipe=old_1"], "`--recipe old_1` was removed: run `python -m old --recipe old_1`."),
        (["--all"], "`--all` was removed: name them."),
    ],
)
def test_a_removed_flag_is_found_however_it_is_written(argv, sentence):
    assert removed_flag(argv, "training.train").startswith(sentence)


@pytest.mark.parametrize("argv", [[], ["--data.tokens", "words"], ["--recipe", "scenes"], ["x"]])
def test_other_flags_are_not(argv):
    assert removed_flag(argv, "training.train") is None
    assert removed_flag(["--all"], "training.inspect") is None


def test_commands_and_saved_configurations_say_so(capsys):
    with pytest.raises(SystemExit) as end:
        parse_flags(Arguments, ["--recipe", "old_1"], "training.train")
    assert end.value.code == 2 and "python -m old --recipe old_1" in capsys.readouterr().err
    assert main(["guess"]) == 2
    assert "use `sat-tf inspect`" in capsys.readouterr().err
    with pytest.raises(ValueError, match="give `--encoder.image-size`"):
        from_dict(Arguments, {"image_shape": 3}, "data.")
    assert from_dict(Arguments, {"image_shape": None}, "data.") == Arguments()
