"""A captioning run leaves its files and a report of its scores."""

from __future__ import annotations

import json

import keras
import numpy as np
import pytest

from tests.training.small_runs import train


@pytest.mark.parametrize("kind", ["soft", "hard", "none"])
def test_a_run_leaves_its_files(request, kind):
    run = request.getfixturevalue(f"{kind}_run")
    evaluation = run / "evaluation" / "dev"
    for path in ("config.json", "vocabulary.json", "best.weights.h5", "logs/train"):
        assert (run / path).exists(), path
    for path in ("report.json", "report.md", "captions.json", "index.html"):
        assert (evaluation / path).stat().st_size > 100, path
    assert (evaluation / "index.html").read_text("utf-8").count("data:image") >= 12
    assert len(list((run / "checkpoints").iterdir())) == 1
    assert json.loads((run / "config.json").read_text())["attention"]["kind"] == kind


@pytest.mark.parametrize("kind", ["soft", "hard", "none"])
def test_a_run_leaves_a_report(request, kind):
    run = request.getfixturevalue(f"{kind}_run")
    report = json.loads((run / "evaluation" / "dev" / "report.json").read_text())
    assert report["recipe"] == f"scenes_{kind}" and report["seed"] == 0
    assert report["split"] == "dev" and len(report["split_fingerprint"]) == 64
    assert report["search"]["beam"] == 2 and report["images"] == 12
    assert report["tokeniser"] == "simple" and report["metric_versions"]
    assert all(seconds >= 0 for seconds in report["seconds"].values())
    assert {"tensorflow", "keras", "numpy", "python"} <= set(report["versions"])
    scores = report["scores"]
    wanted = {f"bleu_{n}{form}" for n in (1, 2, 3, 4) for form in ("", "_no_bp")}
    wanted |= {"brevity_ratio", "cider", "rouge_l", "nll", "perplexity"}
    grounded = {"pointing_game", "attention_correctness", "pointing_game_uniform"}
    assert wanted <= set(scores)
    assert (grounded <= set(scores)) is (kind != "none")
    assert all(np.isfinite(value) for value in scores.values())
    captions = json.loads((run / "evaluation" / "dev" / "captions.json").read_text())
    assert len(captions) == 12 and all(row["caption"] for row in captions)


def test_without_java_meteor_is_left_out_and_the_report_says_so(soft_run):
    report = json.loads((soft_run / "evaluation" / "dev" / "report.json").read_text())
    assert "meteor" not in report["scores"]
    assert any("METEOR" in note and "Java" in note for note in report["notes"])
    assert "METEOR" in (soft_run / "evaluation" / "dev" / "report.md").read_text()


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_supervised_attention_learns_the_boxes(tmp_path, tiny, unvalidated, kind):
    seen = []
    logged = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs))
    flags = ["--recipe", f"scenes_{kind}", "--attention.supervision-weight", "5"]
    train(tmp_path / "run", *tiny, *flags, "--fit.epochs", "3", callbacks=(logged,))
    nats = [logs["supervision"] for logs in seen]
    assert 0 < nats[-1] < nats[0]
    assert "boxes" in json.loads((tmp_path / "run" / "data.json").read_text())
