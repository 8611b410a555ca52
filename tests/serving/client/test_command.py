"""The client's command: lines, JSON, figures, clear errors."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from serving.client.__main__ import main
from tests.image_files import noise


@pytest.fixture
def photo(tmp_path):
    """A photograph, wider than high."""
    path = tmp_path / "bird.jpg"
    noise(40, 90).save(path)
    return path


@pytest.fixture
def command(caller, capsys):
    """Runs the command against the toy server: exit status, output, errors."""

    def run(*argv) -> tuple[int, list[str], list[str]]:
        status = main([*map(str, argv), "--server", f"localhost:{caller.server.port}"])
        said = capsys.readouterr()
        return status, said.out.splitlines(), said.err.splitlines()

    return run


def test_it_prints_a_caption_for_each_image(command, photo):
    status, out, err = command(photo, photo)
    assert (status, err) == (0, [])
    assert out == [f"{photo}: a cat 3  (-0.50)"] * 2


def test_figures_follow_the_models_square(command, photo, tmp_path):
    figures = {}
    for resize in ("crop", "squash"):
        status, out, _ = command(photo, photo, "--out", tmp_path / resize, "--resize", resize)
        assert status == 0 and out[1].endswith(f"{tmp_path / resize / 'bird-2.png'})")
        figures[resize] = np.asarray(Image.open(tmp_path / resize / "bird.png"))
    assert not np.array_equal(figures["crop"], figures["squash"])


def test_scripts_get_a_line_of_json_for_each_image(command, photo, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    status, out, err = command(photo, tmp_path / "broken.png", tmp_path / "missing.jpg", "--json")
    good, broken, missing = map(json.loads, out)
    assert status == 1 and len(err) == 2
    assert good == {
        "image": str(photo),
        "caption": "a cat 3",
        "score": -0.5,
        "version": 3,
        "figure": None,
        "alternatives": [{"caption": "a dog", "score": -1.5}],
    }
    assert broken == {
        "image": str(tmp_path / "broken.png"),
        "error": "the server cannot read it as an image (not what a toy reads)",
    }
    assert missing["error"] == "No such file or directory"


def test_what_is_missing_is_told_without_a_server(tmp_path, capsys):
    heic = tmp_path / "photo.heic"
    heic.write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    names = map(str, (tmp_path / "missing.jpg", tmp_path, heic))
    assert main([*names, "--server", "localhost:1"]) == 1
    err = capsys.readouterr().err.splitlines()
    assert err[0].endswith("missing.jpg: No such file or directory")
    assert err[1].endswith(": Is a directory")
    assert "photo.heic: a HEIC that cannot be read" in err[2]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--server", "[::1]:1", "--timeout", "0.5"], "Error: No server answers on [::1]:1"),
        (["--server", "localhost"], "Error: Received an invalid value for argument `server`"),
        (["--ca-file", "missing.pem"], "Error: [Errno 2] No such file or directory: 'missing.pem'"),
    ],
)
def test_errors_are_one_line(photo, capsys, argv, message):
    assert main([str(photo), *argv]) == 2
    err = capsys.readouterr().err
    assert err.startswith(message) and err.count("\n") == 1


def test_a_file_name_need_not_be_utf_8(caller, photo, tmp_path):
    odd = os.fsencode(tmp_path) + b"/\xff-\xc3\xbc.jpg"
    with open(odd, "wb") as file:
        file.write(photo.read_bytes())
    command = [sys.executable, "-m", "serving.client", odd, "--json"]
    command += ["--server", f"localhost:{caller.server.port}"]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, capture_output=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert b"a cat 3" in done.stdout
    assert os.fsencode(json.loads(done.stdout)["image"]) == odd
