"""Every command but the local server ends with a status and at most one line, no traceback."""

import importlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sat_tf.util.commands import command_line, exit_status, json_line, progress_bar, text_table

RUN, FILE = ["--run-dir", "flickr8k_soft"], ["x.jpg"]
COMMANDS = {
    "sat_tf.inference.caption": [*FILE, *RUN],
    "training.compare": ["RUN", "RUN"],
    "training.evaluate": RUN,
    "training.inspect": [],
    "training.train": [],
    "serving.client": FILE,
    "serving.export_saved_model": RUN,
}


def test_a_light_installation_is_told_what_is_missing(capsys):
    missing = ModuleNotFoundError("No module named 'tensorflow'", name="tensorflow")
    assert exit_status(raiser(missing)) == 2
    assert capsys.readouterr().err == 'Error: this needs tensorflow: pip install -e ".[train]"\n'
    with pytest.raises(ModuleNotFoundError):  # a fault of ours
        exit_status(raiser(ModuleNotFoundError("No module named 'x'", name="x")))


def raiser(error: BaseException):
    """Returns a function that raises the error."""

    def run(*_, **__):
        raise error

    return run


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (KeyboardInterrupt(), 130, "Stopped.\n"),
        (ValueError("expected this, got that."), 2, "Error: expected this, got that.\n"),
        (FileNotFoundError(2, "No such file", "x"), 2, "Error: [Errno 2] No such file: 'x'\n"),
    ],
)
def test_an_error_becomes_a_status_and_a_line(name, error, status, said, monkeypatch, capsys):
    module = importlib.import_module(name)
    monkeypatch.setattr(module, "run", raiser(error))
    assert module.main(COMMANDS[name]) == status
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("name", [name for name, argv in COMMANDS.items() if argv == RUN])
def test_a_folder_that_is_no_run_is_an_error(name, tmp_path, capsys):
    assert importlib.import_module(name).main(["--run-dir", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("Error: ") and "is not a run" in said and "Traceback" not in said


def test_a_command_line_can_be_typed_whatever_its_paths_are():
    line = command_line("sat_tf.inference.caption", "--run-dir", Path("my runs/a$"))
    assert line == "python -m sat_tf.inference.caption --run-dir 'my runs/a$'"


def test_a_command_line_goes_on_as_it_began(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["sat-tf train", "--seed", "1"])
    assert command_line("training.evaluate", "--run-dir", "a") == "sat-tf evaluate --run-dir a"


@pytest.mark.parametrize("command", ["training.train --help", "sat_tf --help"])
def test_output_that_nobody_reads_ends_a_command_quietly(command):
    reading, writing = os.pipe()
    os.close(reading)
    options = {"stdout": writing, "stderr": subprocess.PIPE, "timeout": 60}
    done = subprocess.run([sys.executable, "-m", *command.split()], **options)
    assert done.stderr == b"" and done.returncode in (0, 141)


def test_unexpected_errors_are_raised():
    with pytest.raises(ZeroDivisionError):
        exit_status(raiser(ZeroDivisionError()))
    assert exit_status(raiser(ZeroDivisionError()), (ArithmeticError,)) == 2


@pytest.mark.parametrize(
    ("encoding", "printed"), [("utf-8", b"\\udcff-\xc3\xbc\n"), ("ascii", b"\\udcff-\\xfc\n")]
)
def test_a_name_that_the_output_cannot_say_is_printed_with_escapes(encoding, printed, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding))
    assert exit_status(lambda: print("\udcff-\u00fc", flush=True)) == 0
    assert sys.stdout.buffer.getvalue() == printed
    monkeypatch.setattr(sys, "stdout", io.StringIO())  # has no encoding
    assert exit_status(lambda: print("\udcff")) == 0


def test_a_line_of_json_parses_in_any_encoding():
    values = {"caption": "\u00fcber \u732b \U0001f431", "image": "\udcff", "score": float("nan")}
    assert json.loads(json_line(values).encode("ascii")) == values | {"score": None}


ENDING = """
import atexit, sys
from sat_tf.util.commands import run_process
{before}
atexit.register(print, "bye")
def main():
    {end}
run_process(main)
"""
READING = """
import gc, threading
import tensorflow as tf
begun = threading.Event()
def read(number):
    if number:
        begun.set()
        threading.Event().wait()
    return number
dataset = tf.data.Dataset.range(2).map(lambda n: tf.numpy_function(read, [n], tf.int64))
iterator = iter(dataset.prefetch(1))
next(iterator)
begun.wait()
gc.disable()
iterator.itself = iterator  # so that the interpreter's end would close it, and wait for ever
del iterator
"""


@pytest.mark.parametrize(
    ("before", "end", "status", "last"),
    [
        (READING, "return 3", 3, ""),  # ends though a thread of TensorFlow never does
        ("", "raise KeyError('x')", 1, "KeyError: 'x'"),
    ],
    ids=["reading", "error"],
)
def test_a_process_ends_with_the_status_of_its_command(before, end, status, last):
    command = [sys.executable, "-c", ENDING.format(before=before, end=end)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (status, "bye\n")
    assert not last or done.stderr.splitlines()[-1] == last


@pytest.mark.parametrize("enabled", [True, False])
def test_long_work_is_counted_on_standard_error(capsys, enabled):
    with progress_bar(10, "Annotations", "images", enabled, done=5) as bar:
        bar.update(5)
    shown = capsys.readouterr().err
    assert ("Annotations" in shown and "10/10" in shown) is enabled


def test_columns_are_aligned_and_control_characters_are_escapes():
    rows = [["system", "CIDEr"], ["a\x1b[2Jb", "61.2"], ["c", "8"]]
    assert text_table(rows) == "system     CIDEr\na\\x1b[2Jb   61.2\nc              8"
