"""Each benchmark starts, measures with tiny settings, and prints its table."""

import importlib
from pathlib import Path

import pytest

from benchmarks import step
from training import train

TOY = ["--shapes", "toy", "--repeats", "1"]
BENCHMARKS = {
    "run --only search": ([*TOY, "--only", "search", "--search-batches", "2"], "images/s"),
    "run --only startup": ([*TOY, "--only", "startup", "--images", "8"], "x imports"),
    "estimators": (["--run-dir", "RUN", "--batches", "1", "--draws", "2"], "variance"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run of hard attention on drawn scenes."""
    folder = tmp_path_factory.mktemp("benchmarks") / "run"
    flags = ["--recipe", "scenes_hard", "--data.limit", "32", "--fit.epochs", "1"]
    flags += ["--fit.batch-size", "16", "--fit.validation-images", "8"]
    assert train.main(["--run-dir", str(folder), *flags]) == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_it_measures_and_prints(name, run, capfd):
    flags, says = BENCHMARKS[name]
    module = importlib.import_module(f"benchmarks.{name.split()[0]}")
    assert module.main([str(run) if flag == "RUN" else flag for flag in flags]) == 0
    assert says in capfd.readouterr().out


def test_a_training_step_is_measured_beside_the_baseline(monkeypatch):
    from benchmarks.models import SHAPES

    monkeypatch.setattr(step, "ROTATION", 1)
    variants = step.Variant("baseline"), step.Variant()
    tables = step.measure_step(SHAPES["toy"], [2], 1, variants)
    assert [row["side"] for row in tables["step"]] == ["baseline", "sat_tf"]
    assert tables["step"][0]["times_baseline"] == 1.0
