"""A run loads the code that it uses: an upper limit, so that it does not creep up again."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FROZEN = ("--encoder.name", "scenes_cnn", "--encoder.weights", "none", "--encoder.image-size", "64")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "lines", "files"),
    [
        (("--recipe", "scenes_soft", "--data.limit", "20"), 9_350, 51),
        (("--recipe", "flickr8k_soft", "--data.min_count", "1", *FROZEN), 11_350, 59),
        (("--recipe", "folder_soft", "--data.min_count", "1", *FROZEN), 12_720, 65),
    ],
)
def test_the_first_step_has_loaded_few_lines(tmp_path, make_photographs, flags, lines, files):
    if "scenes_soft" not in flags:
        flags += ("--data-dir", str(make_photographs(tmp_path / "flickr8k")))
    command = [sys.executable, "-m", "tests.training.loaded", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    found = re.search(r"([\d,]+) lines in (\d+) files", done.stdout)
    assert found is not None, done.stderr
    assert int(found[1].replace(",", "")) <= lines and int(found[2]) <= files, done.stdout
