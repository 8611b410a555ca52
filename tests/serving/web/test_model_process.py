"""The process of the models: when it is started again, and how it ends."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from serving.web.model_process import MOST_TRIES, TERMINATED, ModelProcess, undisturbed
from serving.web.sources import Source
from tests.serving.web.run_fixtures import make_export
from tests.waiting import eventually


@pytest.fixture
def processes():
    """Starts processes of models, which end with the test."""
    made = []

    def start(*sources: Source, **options) -> ModelProcess:
        made.append(ModelProcess(sources, **options))
        return made[-1]

    yield start
    for process in made:
        process.stop()


@pytest.fixture
def python(tmp_path, monkeypatch):
    """Puts a shell script in the place of Python; returns its starts, as lines of a file."""

    def replace(script: str) -> Path:
        path, starts = tmp_path / "python", tmp_path / "starts"
        path.write_text(f"#!/bin/sh\necho >> {starts}\n{script}\n")
        path.chmod(0o755)
        starts.touch()
        monkeypatch.setattr(sys, "executable", str(path))
        return starts

    return replace


@pytest.mark.parametrize("status", [1, 2])
def test_a_process_that_ends_by_itself_is_not_started_again(processes, python, status, tmp_path):
    starts = python(f"exit {status}")
    process = processes(Source("soft", make_export(tmp_path / "soft")))
    eventually(lambda: "cannot be loaded: the terminal says why" in process.state())
    assert "cannot be loaded" in process.state()
    assert starts.read_text() == "\n"


@pytest.mark.parametrize("end", ["kill -KILL $$", f"exit {TERMINATED}"])
def test_a_process_that_a_signal_ended_is_started_again(processes, python, end, tmp_path):
    starts = python(end)
    process = processes(Source("soft", make_export(tmp_path / "soft")))
    eventually(lambda: "is being started again" in process.state())
    eventually(lambda: starts.read_text() == "\n\n")


def test_a_process_that_had_loaded_its_models_is_always_started_again(processes, python, tmp_path):
    starts = python('echo > "/dev/fd/$4"; kill -KILL $$')
    process = processes(Source("soft", make_export(tmp_path / "soft")))
    eventually(lambda: process.state() and len(starts.read_text()) > 2 * MOST_TRIES)
    assert "cannot be loaded" not in process.state()


def test_a_first_export_is_said_to_take_longer_than_loading(processes, python, tmp_path):
    python("exec cat")
    made, missing = make_export(tmp_path / "soft"), tmp_path / "hard"
    assert "takes a few seconds" in processes(Source("soft", made)).state()
    process = processes(Source("soft", made), Source("hard", missing, tmp_path / "run"))
    assert "exported, which takes a minute, once per version" in process.state()


def test_a_process_that_missed_the_first_signal_tidies_up_after_the_next(
    processes, python, tmp_path
):
    waiting, tidied = tmp_path / "waiting", tmp_path / "tidied"
    python(
        f"trap 'if [ $missed ]; then echo > {tidied}; exit {TERMINATED}; fi; missed=1' TERM\n"
        f"echo > {waiting}\nwhile :; do sleep 0.1; done"
    )
    process = processes(Source("soft", make_export(tmp_path / "soft")))
    eventually(waiting.exists)
    process.stop()
    assert tidied.exists()


def test_no_further_signal_interrupts_what_follows_the_end():
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with undisturbed():
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        with pytest.raises(SystemExit), undisturbed():
            raise SystemExit(TERMINATED)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.slow
def test_an_export_that_the_end_of_the_page_stops_leaves_nothing_but_its_lock(
    processes, make_run, tmp_path
):
    run, folder = make_run(tmp_path / "run", {"kind": "none"}), tmp_path / "exports" / "none"
    left = folder / ".writing-killed"
    left.mkdir(parents=True)
    process = processes(Source("none", folder, run), seconds=600.0)
    eventually(lambda: not left.exists() and any(folder.glob(".writing-*")))
    process.stop()
    assert list(folder.iterdir()) == [folder / ".lock"]
