"""Command lines: recipes and folders are checked before the work."""

import re

import pytest
from PIL import Image

from sat_tf.inference import caption
from tests.training.small_runs import exit_of
from training import distill, evaluate, inspect, standardize, train
from training.run.decide import check_apart


@pytest.mark.parametrize("command", [train, inspect])
@pytest.mark.parametrize(
    ("kind", "close"), [("hard", "folder_hard"), ("soft", "folder_soft"), ("none", "folder_soft")]
)
def test_a_data_folder_for_drawn_data_is_an_error(capsys, command, kind, close):
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


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "folder is read from your own copy: name its folder with `--data-dir`"),
        (("--data-dir", "nowhere"), "There is no folder `--data-dir nowhere`"),
        (("--data-dir", "file"), "`--data-dir file` is a file"),
        (("--data-dir", ".", "--data.image-dir", "images"), "there is no folder images"),
    ],
)
def test_data_that_is_not_there_is_an_error_before_tensorflow_is_loaded(
    flags, said, monkeypatch, capsys
):
    monkeypatch.setattr(train, "loading", None)
    assert train.main(["--recipe", "folder_soft", "--fit.precision", "float32", *flags]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", [train, inspect])
@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--encoder.name", "mobilnet_v2", "did you mean mobilenet_v2?"),
        ("--encoder.layer", "conv9", "conv5, norm of scenes_cnn, got 'conv9'"),
    ],
)
def test_an_encoder_that_there_is_not_is_an_error_at_once(
    command, flag, value, said, monkeypatch, capsys
):
    monkeypatch.setattr(command, "loading", None)
    assert command.main(["--recipe", "scenes_soft", flag, value]) == 2
    assert f"`{flag}`" in (error := capsys.readouterr().err) and said in error


WEIGHTS = ("--encoder.name", "vgg19", "--encoder.weights", "photo.png")
DRAWN = ("--captions", "mine.json", "--data.name", "scenes")
RUN = ("--run-dir", "flickr8k_soft")
FROZEN = ("--recipe", "scenes_soft", "--encoder.trainable", "False")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    """A folder with a file that is not a folder, and with a photograph."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    Image.new("RGB", [8, 8]).save("photo.png")


@pytest.mark.parametrize(
    ("command", "flag", "argv"),
    [
        (standardize, "--out", (*WEIGHTS, "--out", "file/x.weights.h5")),
        (distill, "--out", ("flickr8k_soft", "--out", "file/x.npz")),
        (inspect, "--out", ("--recipe", "scenes_soft", "--out", "file")),
        (evaluate, "--out", (*RUN, "--out", "file")),
        (evaluate, "--out", (*DRAWN, "--out", "file/folder")),
        (caption, "--out", ("photo.png", *RUN, "--out", "file")),
        (caption, "--html", ("photo.png", *RUN, "--html", "file/page.html")),
    ],
)
def test_it_is_an_error_before_the_work(monkeypatch, capsys, command, flag, argv):
    monkeypatch.setattr(command, "loading", None, raising=False)
    status, said = exit_of(capsys, command.main, *argv)
    assert status == 2 and f"`{flag}`: expected a f" in said and "can be written" in said


def test_results_do_not_go_among_the_data(tmp_path):
    check_apart("--out", tmp_path / "out", tmp_path)
    check_apart("--out", tmp_path, None)
    with pytest.raises(ValueError, match="`--out`: expected a folder other than the data's"):
        check_apart("--out", tmp_path / "x" / "..", tmp_path)


def test_help_names_recipes_and_the_keys_used_most_in_two_screens(capsys):
    def help_of(*argv: str) -> str:
        with pytest.raises(SystemExit) as end:
            train.main([*argv])
        assert end.value.code == 0
        return capsys.readouterr().out

    short, whole = help_of("--help"), help_of("--help-all")
    assert len(short.splitlines()) <= 60
    assert "start with scenes_soft" in short and "folder_soft" in short and "--help-all" in short
    keys = re.findall(r"--[a-z]+\.[a-z-]+", short)
    assert len(keys) > 9 and all(f"{key} " in whole for key in keys)


def test_a_digit_recipe_is_answered_with_its_command(capsys):
    status, said = exit_of(capsys, train.main, "--recipe", "ram_28")
    assert status == 2 and "`python -m digits.train --recipe ram_28`" in said
