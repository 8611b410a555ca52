"""Commands in processes of their own, as a user starts them: little on standard error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.image_files import noise

ROOT = Path(__file__).resolve().parents[2]


def standard_error(*command: object) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.slow
def test_only_what_tensorflow_writes_before_it_knows_its_level_is_left(soft_run, tmp_path):
    image = tmp_path / "image.jpg"
    noise(40, 90).save(image)
    places = ("--run-dir", soft_run, "--out", tmp_path / "out")
    said = standard_error("training.caption", image, *places).splitlines()
    # A run on drawn scenes says which words it knows.
    (note,) = (line for line in said if line.startswith("Note: "))
    assert "knows these words: a, above, " in note
    unlike = f"{image}: This photograph is unlike those that the captioner learned from."
    others = [line for line in said if line not in (note, unlike)]
    assert len(others) <= 8 and all(
        line.startswith(("WARNING: All log", "I0000")) for line in others
    )
