"""TensorFlow's start-up messages: left out by default, and nothing else with them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHATTER = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795451786.349343   26086 port.cc:153] oneDNN custom operations are on.
I0000 00:00:1795451786.543093   26086 cpu_feature_guard.cc:227] This binary is optimized.
To enable the following instructions: AVX2 FMA, rebuild TensorFlow with the compiler flags.
E0000 00:00:1795451799.107066   26086 cuda_platform.cc:52] failed call to cuInit: INTERNAL
"""
LOUD = f"import os, sys\nos.write(2, {CHATTER!r}.encode())\n"


def run(folder: Path, fake_tensorflow: str, then: str = "", **variables: str):
    """Imports a module in place of TensorFlow in a process, as a command does."""
    (folder / "tensorflow.py").write_text(LOUD + fake_tensorflow)
    lines = ["import sys", "from sat_tf.commands import exit_status"]
    lines += ["def command():", "    import tensorflow", f"    {then}"]
    lines += ["raise SystemExit(exit_status(command))"]
    ours = ("TF_CPP_MIN_LOG_LEVEL", "SAT_TF_VERBOSE")
    environment = {k: v for k, v in os.environ.items() if k not in ours}
    environment |= {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"} | variables
    return subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], env=environment, capture_output=True, text=True
    )


def test_start_up_messages_are_left_out_and_everything_else_passes(tmp_path):
    loud = "print('Warning: a line of Python', file=sys.stderr)\nos.write(2, b'of C, unfinished')"
    done = run(tmp_path, loud, then="print('after', file=sys.stderr)")
    assert (done.returncode, done.stderr) == (
        0,
        "Warning: a line of Python\nof C, unfinishedafter\n",
    )


@pytest.mark.parametrize("variable", ["SAT_TF_VERBOSE", "TF_CPP_MIN_LOG_LEVEL"])
def test_messages_are_shown_if_asked_for(tmp_path, variable):
    assert run(tmp_path, "", **{variable: "1"}).stderr == CHATTER


@pytest.mark.parametrize("level", ["2", "3"])
def test_a_level_that_asks_for_quiet_gives_it(tmp_path, level):
    shown = "print(__import__('os').environ['TF_CPP_MIN_LOG_LEVEL'])"
    done = run(tmp_path, "", then=shown, TF_CPP_MIN_LOG_LEVEL=level)
    assert (done.stdout, done.stderr) == (f"{level}\n", "")


def test_a_process_that_a_quiet_one_starts_is_quiet(tmp_path):
    child = "from sat_tf.commands import exit_status; exit_status(lambda: __import__('tensorflow'))"
    started = f"__import__('subprocess').run([sys.executable, '-c', {child!r}])"
    assert run(tmp_path, "", then=started).stderr == ""


def test_an_import_that_fails_shows_its_error(tmp_path):
    done = run(tmp_path, "raise ImportError('no such library')")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback") and "no such library" in done.stderr
    assert "oneDNN" not in done.stderr


def test_an_import_that_crashes_shows_its_last_words(tmp_path):
    fatal = "F0000 00:00:1795451786.34   26086 cpu_feature_guard.cc:9] compiled to use AVX\n"
    done = run(tmp_path, f"os.write(2, {fatal.encode()!r})\nos.abort()")
    assert done.returncode < 0 and done.stderr == fatal


def test_a_later_level_of_the_log_is_fatal_only(tmp_path):
    done = run(tmp_path, "", then="print(__import__('os').environ['TF_CPP_MIN_LOG_LEVEL'])")
    assert (done.stdout, done.stderr) == ("3\n", "")
