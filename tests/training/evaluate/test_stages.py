"""Stages of an evaluation."""

from __future__ import annotations

import pytest

from training.evaluate.evaluation import timed


def test_stages_are_announced_before_and_timed_after_they_run(monkeypatch, capsys):
    monkeypatch.setattr("time.monotonic", iter([1.0, 10.0, 12.5, 20.0]).__next__)
    seconds = {}
    with timed(seconds, "whole"), timed(seconds, "search", "Captioning 3 images"):
        assert capsys.readouterr().out == "Captioning 3 images ...\n" and not seconds
    assert seconds == {"search": 2.5, "whole": 19.0}


def test_a_stage_that_fails_has_no_time():
    seconds = {}
    with pytest.raises(OSError), timed(seconds, "search"):
        raise OSError
    assert not seconds
