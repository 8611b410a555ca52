"""Each benchmark starts, measures with tiny settings, and prints its table."""

import importlib

import pytest

from benchmarks import estimators, run
from benchmarks.measure import command
from benchmarks.models import SHAPES
from tests.training.conftest import hard_run  # noqa: F401  (a fixture, found by name)

TOY = ["--shapes", "toy", "--repeats", "1"]
BENCHMARKS = {
    "run --only search": ([*TOY, "--only", "search", "--search-batches", "2"], "images_s"),
    "estimators": (["--run-dir", "RUN", "--batches", "1", "--draws", "2"], "relative_variance"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_it_measures_and_prints(name, hard_run, capfd, monkeypatch):  # noqa: F811
    two = {kind: estimators.ESTIMATORS[kind] for kind in ("paper", "rloo")}
    monkeypatch.setattr(estimators, "ESTIMATORS", two)
    flags, says = BENCHMARKS[name]
    module = importlib.import_module(f"benchmarks.{name.split()[0]}")
    assert command(module.run, [str(hard_run) if flag == "RUN" else flag for flag in flags]) == 0
    assert says in capfd.readouterr().out


@pytest.mark.slow
def test_a_training_step_is_measured_beside_the_baseline(monkeypatch):
    monkeypatch.setattr(run, "ROTATION", 1)
    rows = run.measure_step(SHAPES["toy"], [2], 1, [run.Variant("baseline"), run.Variant()])
    assert [row["side"] for row in rows] == ["baseline", "sat_tf"]
    assert rows[0]["times_baseline"] == 1.0
