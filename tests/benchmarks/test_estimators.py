"""The comparison of estimators: its arguments, its arithmetic, and a tiny one from end to end."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from PIL import Image

from benchmarks import estimator_runs, gradient_noise
from benchmarks.dot_plot import Spread
from benchmarks.estimator_runs import figures
from benchmarks.estimators import (
    BASE,
    ESTIMATORS,
    Arguments,
    at_equal_compute,
    config_of,
    main,
    plan_of,
    summarise,
)
from sat_tf.fields import to_dict
from sat_tf.runs import RunError
from training.metrics import captions as caption_metrics
from training.run_state.checkpoints import Progress
from training.tasks.base import Places

TINY = [
    *("--data.limit", "12", "--fit.epochs", "1", "--fit.batch-size", "16"),
    *("--decoder.embedding-dim", "8", "--decoder.attention-dim", "8"),
    *("--decoder.hidden-dim", "16", "--search.beam", "2", "--search.max-length", "8"),
    *("--fit.figures", "0"),
    *("--estimators", "soft,vimco", "--seeds", "3", "--batches", "1", "--draws", "32"),
]

SCORES = {"bleu_4": 60.0, "cider": 400.0, "pointing_game": 55.0}


@pytest.fixture(autouse=True)
def _without_java(monkeypatch):
    """Starting it costs more than a tiny run."""
    monkeypatch.setattr(caption_metrics, "find_java", lambda: None)


@pytest.mark.slow
def test_a_comparison_from_training_to_plot(tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    assert main([*TINY, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    report = json.loads((out / "comparison.json").read_text("utf-8"))
    assert_compared(printed, report)
    assert np.asarray(Image.open(out / "comparison.png")).std() > 0
    # Once more: what is finished is read, not made again.
    monkeypatch.setattr(estimator_runs, "fit", lambda *_, **__: pytest.fail("trained"))
    files = ["--json", str(tmp_path / "again.json"), "--plot", str(tmp_path / "again.png")]
    assert main([*TINY, "--out", str(out), *files]) == 0
    assert (tmp_path / "again.png").is_file()
    again = json.loads((tmp_path / "again.json").read_text("utf-8"))["runs"]
    for before, after in zip(report["runs"], again, strict=True):
        for row in (before, after):
            del row["step_ms"]
        assert after == before


def assert_compared(printed: str, report: dict) -> None:
    lines = [line.split() for line in printed.splitlines()]
    assert [line[0] for line in lines] == ["estimator", "soft", "vimco"]
    assert "x vimco at equal compute" in printed
    soft, vimco = report["runs"]
    assert (vimco["samples"], vimco["seed"], vimco["equal_compute"]) == (5, 3, 1.0)
    assert soft["equal_compute"] is None and "elbo" not in soft
    assert vimco["importance_weighted_bound_50"] > vimco["elbo"]
    assert vimco["relative_variance"] > 0  # two draws would not tell gradient from noise
    assert "cosine" in vimco and "cosine" not in soft
    for row in (soft, vimco):
        assert row["step_ms"] > 0 and row["minutes"] > 0
        assert {"bleu_4", "cider", "pointing_game"} <= row.keys()
    configurations = report["configurations"].values()
    assert [c["attention"]["kind"] for c in configurations] == ["soft", "hard"]
    assert report["machine"]["cpu"] and report["draws"] == 32


def test_every_seed_of_every_estimator_is_compared(tmp_path, capsys, monkeypatch):
    asked = []

    def figures(config, places, interrupts=None):
        name = places.run_dir.name
        asked.append((name, config.seed, config.attention.preset, config.data.limit))
        scores = {"bleu_4": 50.0 + 2 * config.seed, "cider": 300.0, "pointing_game": 40.0}
        return scores | {"elbo": -9.5, "minutes": 3.0}

    def measure(configs, start, *_, **__):
        assert start.name == f"paper-seed{configs['rloo'].seed}"
        names = "relative_variance", "step_ms"
        found = {"paper": (8.0, 50.0), "rloo": (1.0, 100.0)}
        return {name: dict(zip(names, values, strict=True)) for name, values in found.items()}

    monkeypatch.setattr(estimator_runs, "figures", figures)
    monkeypatch.setattr(gradient_noise, "measure", measure)
    out, plot = tmp_path / "out", tmp_path / "new" / "folder" / "plot.png"
    flags = ["--estimators", "paper", "rloo", "--seeds", "0", "1", "--data.limit", "7"]
    assert main([*flags, "--out", str(out), "--plot", str(plot)]) == 0
    assert asked == [
        (f"{name}-seed{seed}", seed, name, 7) for seed in (0, 1) for name in ("paper", "rloo")
    ]
    heading, paper, rloo = capsys.readouterr().out.splitlines()
    assert "x paper at equal compute" in heading
    assert "51.0 ± 1.4" in paper and "1.00 ± 0.00" in paper
    assert "0.25 ± 0.00" in rloo and "-9.50 ± 0.00" in rloo
    report = json.loads((out / "comparison.json").read_text("utf-8"))
    assert [row["bleu_4"] for row in report["runs"]] == [50.0, 50.0, 52.0, 52.0]
    assert plot.is_file()


@pytest.mark.parametrize("flag", ["--json", "--plot"])
def test_a_file_that_cannot_be_written_is_told_before_training(tmp_path, capsys, monkeypatch, flag):
    monkeypatch.setattr(estimator_runs, "figures", lambda *_: pytest.fail("trained"))
    assert main(["--out", str(tmp_path / "out"), flag, str(tmp_path)]) == 2
    assert f"`{flag}`: expected a file, got the folder" in capsys.readouterr().err


@pytest.fixture
def finished(tmp_path) -> Places:
    """Files of a finished run of the base configuration, as far as they are read."""
    places = Places(tmp_path / "run", tmp_path / "cache")
    for folder, name, content in (
        (".", "config.json", to_dict(BASE)),
        ("evaluation/dev", "report.json", {"scores": SCORES, "bounds": {"elbo": -3.0}}),
        ("checkpoints/epoch-002", "state.json", dataclasses.asdict(Progress(2, seconds=90.0))),
    ):
        (places.run_dir / folder).mkdir(parents=True, exist_ok=True)
        (places.run_dir / folder / name).write_text(json.dumps(content), "utf-8")
    return places


def test_a_finished_run_is_read_and_not_made_again(finished, monkeypatch):
    for name in ("fit", "evaluate_run"):
        monkeypatch.setattr(estimator_runs, name, lambda *_, **__: pytest.fail("made again"))
    assert figures(BASE, finished) == {**SCORES, "elbo": -3.0, "minutes": 1.5}


def test_a_run_that_was_stopped_resumes_and_is_evaluated(finished, monkeypatch):
    report, done = finished.run_dir / "evaluation/dev/report.json", []
    written = report.read_text("utf-8")
    report.unlink()
    monkeypatch.setattr(estimator_runs, "fit", lambda *_, **__: done.append("fit"))

    def evaluate(*_, **__):
        done.append("evaluate")
        report.write_text(written, "utf-8")

    monkeypatch.setattr(estimator_runs, "evaluate_run", evaluate)
    assert figures(BASE, finished)["bleu_4"] == SCORES["bleu_4"]
    assert done == ["fit", "evaluate"]


def test_the_folder_of_another_configuration_is_refused(finished):
    other = dataclasses.replace(BASE, data=dataclasses.replace(BASE.data, limit=11))
    with pytest.raises(RunError, match="`data.limit` is .* and 11 here.* with `--out`"):
        figures(other, finished)


def test_compute_is_equal_where_time_is():
    rows = [
        {"estimator": "soft", "step_ms": 30.0},
        {"estimator": "paper", "step_ms": 50.0, "relative_variance": 10.0},
        {"estimator": "rloo", "step_ms": 100.0, "relative_variance": 2.0},
        {"estimator": "vimco", "step_ms": 100.0, "relative_variance": None},
    ]
    found = [row["equal_compute"] for row in at_equal_compute(rows, "paper")]
    assert found == [None, 1.0, pytest.approx(0.4), None]


def test_a_row_sums_up_the_seeds_that_have_the_figure():
    rows = [
        {"estimator": "rloo", "seed": 0, "samples": 5, "bleu_4": 1.0, "equal_compute": None},
        {"estimator": "soft", "seed": 0, "bleu_4": 7.0},
        {"estimator": "rloo", "seed": 1, "samples": 5, "bleu_4": 3.0, "equal_compute": 0.5},
    ]
    assert summarise(rows) == [
        {
            "estimator": "rloo",
            "samples": 5,
            "bleu_4": Spread((1.0, 3.0)),
            "equal_compute": Spread((0.5,)),
        },
        {"estimator": "soft", "samples": None, "bleu_4": Spread((7.0,))},
    ]


def test_estimators_differ_in_attention_alone():
    configs = {name: config_of(name, BASE) for name in ESTIMATORS}
    assert len({config.attention for config in configs.values()}) == len(ESTIMATORS)
    first = configs["soft"]
    assert first.attention.kind == "soft" and first.fit.patience == first.fit.epochs
    for config in configs.values():
        same = dataclasses.replace(config, recipe=first.recipe, attention=first.attention)
        assert same == first


def test_the_unbiased_single_sample_keeps_the_paper_s_baseline():
    paper, reinforce = (config_of(n, BASE).attention.estimator for n in ("paper", "reinforce"))
    assert (reinforce.reward_weight, reinforce.expectation_probability) == (1.0, 0.0)
    assert (reinforce.samples, reinforce.baseline) == (paper.samples, paper.baseline)


def test_noise_is_compared_with_the_paper_s_where_it_is_there():
    assert plan_of(Arguments()).reference == "paper"
    plan = plan_of(Arguments(estimators=("soft", "vimco,rloo"), seeds=("4,2", "4")))
    assert (plan.reference, plan.seeds) == ("vimco", (4, 2))
    assert list(plan.configs) == ["soft", "vimco", "rloo"]


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--estimators", "rloo,nonsense"], "`--estimators`: expected some of soft, paper,"),
        (["--estimators", "soft"], "`--estimators`: expected one of hard attention, got soft"),
        (["--seeds", "1,x"], "`--seeds`: expected integers of 0 or more, got 1,x"),
        (["--draws", "1"], "`--draws`: expected 2 or more, got 1"),
        (["--batches", "0"], "`--batches`: expected 1 or more, got 0"),
        (["--seed", "1"], "`--seed`, which the comparison sets itself; see `--seeds`"),
        (["--attention.samples", "3"], "`--attention`, which the comparison sets itself"),
        (["--recipe", "flickr8k_hard"], "`--recipe`, which the comparison sets itself"),
    ],
)
def test_a_bad_argument_is_named(flags, complaint, capsys):
    assert main(flags) == 2
    assert complaint in capsys.readouterr().err
