"""Recipes and folders of a command line, checked before TensorFlow is loaded."""

from __future__ import annotations

import pytest

from training import train
from training.inspect import command as inspect


@pytest.mark.parametrize("command", [train, inspect])
@pytest.mark.parametrize(
    ("kind", "close"), [("hard", "folder_hard"), ("soft", "folder_soft"), ("none", "folder_soft")]
)
def test_a_data_folder_for_drawn_data_is_an_error_that_names_the_recipe(
    capsys, command, kind, close
):
    assert command.main(["--recipe", f"scenes_{kind}", "--data-dir", "photos"]) == 2
    message = capsys.readouterr().err
    assert f"`scenes_{kind}` reads no data" in message
    assert f"did you mean `--recipe {close}`?" in message


def test_a_run_to_start_from_that_does_not_exist_is_an_error(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # `make train` may have left a run in the repository
    assert train.main(["--init-from", "nowhere"]) == 2
    assert "`--init-from`: expected the folder of a finished run or" in capsys.readouterr().err
    assert train.main(["--init-from", "flickr8k_sof"]) == 2
    assert "did you mean flickr8k_soft?" in capsys.readouterr().err
    assert train.main(["--recipe", "ram_28", "--init-from", "flickr8k_soft"]) == 2
    assert "`--init-from`: expected the folder of a finished run, got" in capsys.readouterr().err
