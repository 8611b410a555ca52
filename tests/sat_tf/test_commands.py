"""Every command but the local server ends with a status and at most a line, never a traceback."""

from __future__ import annotations

import gc
import importlib
import signal
import sys

import pytest

from sat_tf.commands import exit_status, loading

RUN, FILE = ["--run-dir", "RUN"], ["x.jpg"]
COMMANDS = {
    "training.caption": [*FILE, *RUN],
    "training.compare": ["RUN", "RUN"],
    "training.evaluate": RUN,
    "training.inspect": [],
    "training.train": [],
    "serving.client_command": FILE,
    "serving.export": RUN,
    "benchmarks.estimators": [],
    "benchmarks.run": [],
    "benchmarks.serving_latency": [],
    "benchmarks.serving_load": ["EXPORT"],
}


def raiser(error: BaseException):
    """A function that raises it, whatever it is called with."""

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
def test_what_stops_a_command_is_a_status_and_a_line(
    name, error, status, said, monkeypatch, capsys
):
    module = importlib.import_module(name)
    monkeypatch.setattr(module, "run", raiser(error))
    assert module.main(COMMANDS[name]) == status
    assert capsys.readouterr().err == said


def test_other_errors_are_no_bad_input():
    with pytest.raises(ZeroDivisionError):
        exit_status(raiser(ZeroDivisionError()))
    assert exit_status(raiser(ZeroDivisionError()), (ArithmeticError,)) == 2


@pytest.mark.parametrize(("returned", "status"), [(None, 0), (0, 0), (1, 1)])
def test_a_command_that_ends_says_how(returned, status, capsys):
    assert exit_status(lambda: returned) == status
    assert capsys.readouterr() == ("", "")


def test_an_interruption_may_bring_its_own_status(capsys):
    stop = KeyboardInterrupt("Stopped by SIGTERM.")
    stop.status = 128 + signal.SIGTERM
    assert exit_status(raiser(stop)) == 143
    assert capsys.readouterr().err == "Stopped by SIGTERM.\n"


@pytest.mark.parametrize("loaded", [False, True])
def test_the_collector_waits_for_tensorflow_once(loaded, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    if not loaded:
        monkeypatch.delitem(sys.modules, "tensorflow")
    frozen = gc.get_freeze_count()
    try:
        with pytest.raises(ImportError), loading():
            assert gc.isenabled() is loaded
            raise ImportError
        assert gc.isenabled()
        assert (gc.get_freeze_count() == frozen) is loaded
    finally:
        gc.unfreeze()
