"""The comparison of estimators: its arguments, its arithmetic, and a tiny one from end to end."""

from __future__ import annotations

import dataclasses
import json

import keras
import numpy as np
import pytest
from PIL import Image

from benchmarks import estimator_runs
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
from benchmarks.spread import Spread
from training.metrics import captions as caption_metrics

TINY = [
    *("--data.limit", "12", "--fit.epochs", "1", "--fit.batch-size", "16"),
    *("--decoder.embedding-dim", "8", "--decoder.attention-dim", "8"),
    *("--decoder.hidden-dim", "16", "--search.beam", "2", "--search.max-length", "8"),
    *("--estimators", "soft,vimco", "--seeds", "3", "--batches", "1", "--draws", "2"),
]


@pytest.fixture(autouse=True)
def _without_java(monkeypatch):
    """Starting it costs more than a tiny run."""
    monkeypatch.setattr(caption_metrics, "find_java", lambda: None)


def test_a_comparison_is_printed_drawn_and_kept(tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    assert main([*TINY, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    report = json.loads((out / "comparison.json").read_text("utf-8"))
    assert_compared(printed, report)
    assert np.asarray(Image.open(out / "comparison.png")).std() > 0
    # Once more: what is finished is read, not made again.
    monkeypatch.setattr(keras.Model, "fit", lambda *_, **__: pytest.fail("trained"))
    monkeypatch.setattr(estimator_runs, "evaluate_run", lambda *_, **__: pytest.fail("evaluated"))
    files = ["--json", str(tmp_path / "again.json"), "--plot", str(tmp_path / "again.png")]
    assert main([*TINY, "--out", str(out), *files, "--estimators", "vimco"]) == 0
    assert (tmp_path / "again.png").is_file()
    (again,) = json.loads((tmp_path / "again.json").read_text("utf-8"))["runs"]
    _, before = report["runs"]
    for key in ("bleu_4", "cider", "pointing_game", "elbo", "minutes", "relative_variance"):
        assert again[key] == before[key]
    assert main([*TINY, "--out", str(out), "--data.limit", "11"]) == 2
    assert "`data.limit` is 12 there and 11 here" in capsys.readouterr().err


def assert_compared(printed: str, report: dict) -> None:
    lines = [line.split() for line in printed.splitlines()]
    assert [line[0] for line in lines] == ["estimator", "soft", "vimco"]
    assert "x vimco at equal compute" in printed
    soft, vimco = report["runs"]
    assert (vimco["samples"], vimco["seed"], vimco["equal_compute"]) == (5, 3, 1.0)
    assert soft["equal_compute"] is None and "elbo" not in soft
    assert vimco["importance_weighted_bound_50"] > vimco["elbo"]
    assert vimco["relative_variance"] is None or vimco["relative_variance"] > 0
    assert "cosine" in vimco and "cosine" not in soft
    for row in (soft, vimco):
        assert row["step_ms"] > 0 and row["minutes"] > 0
        assert {"bleu_4", "cider", "pointing_game"} <= row.keys()
    configurations = report["configurations"].values()
    assert [c["attention"]["kind"] for c in configurations] == ["soft", "hard"]
    assert report["machine"]["cpu"] and report["draws"] == 2


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
