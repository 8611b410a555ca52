"""Each benchmark starts, measures with tiny settings, and prints its table."""

import importlib

import pytest

import sat_tf
from benchmarks import step
from benchmarks.measure import command
from serving.export import export
from training import train

TOY = ["--shapes", "toy", "--repeats", "1"]
BENCHMARKS = {
    "run --only search": ([*TOY, "--only", "search", "--search-batches", "2"], "images_s"),
    "estimators": (["--run-dir", "RUN", "--batches", "1", "--draws", "2"], "relative_variance"),
    "serving_latency": (["--run-dir", "RUN", "--batches", "1", "--repeats", "1"], "search_ms"),
    "serving_load": (["EXPORT", "--clients", "2", "--seconds", "0.5", "--images", "1"], "images_s"),
    "litert": (["--run-dir", "RUN", "--images", "2", "--precisions", "float32"], "bleu_4"),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, str]:
    """A run of hard attention on drawn scenes, and its export."""
    folder = tmp_path_factory.mktemp("benchmarks")
    run = folder / "run"
    flags = ["--recipe", "scenes_hard", "--data.limit", "32", "--fit.epochs", "1"]
    flags += ["--fit.batch-size", "16", "--fit.validation-images", "8"]
    assert train.main(["--run-dir", str(run), *flags]) == 0
    export(sat_tf.load(run), folder / "export")
    return {"RUN": str(run), "EXPORT": str(folder / "export")}


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_it_measures_and_prints(name, places, capfd):
    flags, says = BENCHMARKS[name]
    module = importlib.import_module(f"benchmarks.{name.split()[0]}")
    assert command(module.run, [places.get(flag, flag) for flag in flags]) == 0
    assert says in capfd.readouterr().out


@pytest.mark.slow
def test_a_training_step_is_measured_beside_the_baseline(monkeypatch):
    from benchmarks.models import SHAPES

    monkeypatch.setattr(step, "ROTATION", 1)
    variants = step.Variant("baseline"), step.Variant()
    tables = step.measure_step(SHAPES["toy"], [2], 1, variants)
    assert [row["side"] for row in tables["step"]] == ["baseline", "sat_tf"]
    assert tables["step"][0]["times_baseline"] == 1.0
