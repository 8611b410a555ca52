"""The load benchmark runs, and tells what was lost."""

from __future__ import annotations

import contextlib
import math
import os

import numpy as np
import pytest

from benchmarks import serving_load
from benchmarks.serving_load import Arguments, Load, criteria, describe, main, measure
from tests.serving import toys
from tests.serving.server_fixtures import serving  # noqa: F401


@pytest.fixture(scope="module")
def export_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    toys.export(folder, 1)
    return folder


def test_it_measures_each_size_of_request(export_dir, capfd):
    argv = [str(export_dir), "--clients", "4", "--seconds", "1", "--images", "1", "8"]
    assert main([*argv, "--attention", "--attackers", "2"]) == 0
    lines = capfd.readouterr().out.splitlines()[2:]
    assert sum("pass: nothing lost" in line for line in lines) == 2
    assert "(0 hostile" not in "".join(lines)
    rows = [line.split() for line in lines if "pass" not in line]
    assert [row[0] for row in rows] == ["1", "8"]
    for _, requests, p50, p99, rate, lost, server_mb in rows:
        assert int(requests) > 0 and int(lost) == 0
        assert 0 < float(p50) <= float(p99)
        # Unknown without /proc; TensorFlow alone takes more.
        assert server_mb == "-" or float(server_mb) > 100
        assert float(rate) > 0


def test_what_is_lost_is_counted(export_dir, serving, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setattr(serving_load, "drawn_photograph", lambda: b"nonsense")
    argv = [str(export_dir), "--clients", "2", "--seconds", "0.2", "--images", "1"]
    with serving(export_dir) as caller:
        here = contextlib.nullcontext((str(caller.server.port), os.getpid()))
        monkeypatch.setattr(serving_load, "local_server", lambda _: here)
        assert main(argv) == 1
    assert "an answer without a caption for each image" in capsys.readouterr().out


@pytest.mark.slow
def test_a_folder_that_cannot_be_served_is_an_error(tmp_path, capfd):
    assert main([str(tmp_path)]) == 2
    said = capfd.readouterr().err.splitlines()
    assert "holds version folders" in said[-2]
    assert said[-1] == "Error: the server did not start: it says why above"
    assert not any("Traceback" in line for line in said)


def test_a_server_that_is_away_loses_everything():
    arguments = Arguments(export_dir=None, clients=1, seconds=0.05, timeout=0.2)
    load = measure(1, b"", 2, arguments)
    assert load.lost and not load.latencies and "nan" in describe(load)


def test_a_p99_above_the_limit_fails():
    load = Load(1, 2.0, [0.5, 4.0], hostile=7)
    assert [met for met, _ in criteria(load, 3.0)] == [True, False]
    assert criteria(load, math.inf) == [(True, "nothing lost (7 hostile files beside)")]


def test_the_table_holds_percentiles_and_the_rate():
    load = Load(8, 2.0, list(np.arange(1, 101) / 1000))
    assert describe(load).split() == ["8", "100", "50.5", "99.0", "400.0", "0", "-"]
