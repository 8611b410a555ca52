"""Evaluated runs side by side: scores, paired differences, notes, and what cannot be compared."""

import json
import re
import shutil
from pathlib import Path

import pytest

from training.compare import main
from training.evaluation import bootstrap


@pytest.fixture(autouse=True)
def _intervals_of_few_images(monkeypatch):
    """Gives the twelve images of these runs intervals."""
    monkeypatch.setattr(bootstrap, "FEW", 2)
    monkeypatch.setattr(bootstrap, "VARIED", 0)


def compared(capsys, *runs: Path) -> str:
    assert main([*map(str, runs)]) == 0
    return capsys.readouterr().out


def refused(capsys, *argv) -> str:
    assert main([*map(str, argv)]) == 2
    return capsys.readouterr().err


def numbers(text: str, metric: str) -> list[list[float]]:
    """The figures of each line of a metric: of the scores, of the differences."""
    lines = [line for line in text.splitlines() if line.split()[:1] == [metric]]
    return [[float(n) for n in re.findall(r"[-+]?\d+\.\d+", line)] for line in lines]


def score_of(run: Path, metric: str) -> float:
    return json.loads((run / "evaluation" / "dev" / "report.json").read_text())["scores"][metric]


@pytest.fixture
def copy(soft_run, tmp_path) -> Path:
    """A run with an evaluation to spoil."""
    run = tmp_path / "copy"
    shutil.copytree(soft_run / "evaluation", run / "evaluation")
    return run


def rewrite(run: Path, name: str, change) -> None:
    path = run / "evaluation" / "dev" / name
    content = json.loads(path.read_text())
    path.write_text(json.dumps(change(content) or content))


def test_three_runs_stand_side_by_side_each_against_the_first(capsys, soft_run, hard_run, none_run):
    runs = (soft_run, hard_run, none_run)
    said = compared(capsys, *runs)
    for label, run in zip("ABC", runs, strict=True):
        assert f"{label}: {run}\n" in said
    assert "dev, 12 images, 1000 resamples" in said
    assert re.search(r"^ +A +B +C$", said, re.M) and "B - A" in said and "C - A" in said
    assert [score_of(run, "bleu_4") for run in runs] == [None] * 3  # hardly trained
    assert re.search(r"^bleu_4 +undefined +undefined +undefined$", said, re.M)
    assert re.search(r"^bleu_4 +undefined +undefined$", said, re.M)
    for metric in ("cider", "rouge_l"):
        scores, differences = numbers(said, metric)
        assert scores == pytest.approx([score_of(run, metric) for run in runs], abs=0.006)
        for place, score in enumerate(scores[1:]):
            difference, low, high = differences[3 * place : 3 * place + 3]
            assert difference == pytest.approx(score - scores[0], abs=0.02)
            assert low <= difference <= high
    assert not numbers(said, "meteor")  # its tables are hidden


def test_seeds_of_a_system_are_averaged(capsys, soft_run, hard_run, none_run):
    runs = (none_run, hard_run, soft_run, hard_run)
    assert main([*map(str, runs), "--seeds", "2"]) == 0
    said = capsys.readouterr().out
    assert f"A: {none_run}, {hard_run}\n" in said and f"B: {soft_run}, {hard_run}\n" in said
    none, hard, soft = (score_of(run, "cider") for run in (none_run, hard_run, soft_run))
    scores, (difference, low, high) = numbers(said, "cider")
    assert scores == pytest.approx([(none + hard) / 2, (soft + hard) / 2], abs=0.006)
    assert difference == pytest.approx((soft - none) / 2, abs=0.02) and low <= difference <= high
    assert "4 to 52 folders" in refused(capsys, *runs[:2], "--seeds", "2")
    assert "2 folders for each system" in refused(capsys, *runs, soft_run, "--seeds", "2")


def test_attention_is_compared_where_all_have_looked(capsys, soft_run, hard_run, none_run, copy):
    said = compared(capsys, soft_run, hard_run)
    scores, (difference, low, high) = numbers(said, "pointing_game")
    expected = [score_of(run, "pointing_game") for run in (soft_run, hard_run)]
    assert scores == pytest.approx(expected, abs=0.006)
    assert difference == pytest.approx(scores[1] - scores[0], abs=0.02)
    assert low <= difference <= high
    assert not numbers(compared(capsys, soft_run, none_run), "pointing_game")

    def worse(rows):
        for row in rows:
            row["grounding"]["pointing_game"] -= 10

    rewrite(copy, "captions.json", worse)
    assert numbers(compared(capsys, soft_run, copy), "pointing_game")[1] == [-10, -10, -10]


def test_notes_are_told_once_with_the_runs_they_are_about(capsys, soft_run, none_run, copy):
    gone = []

    def shorten(rows):
        rows[0]["caption"] = ""
        gone.append(rows.pop()["image_id"])

    rewrite(copy, "captions.json", shorten)
    said = compared(capsys, soft_run, none_run, copy)
    assert said.count("METEOR is left out") == 1
    assert "Note on C: 1 of 11 captions are empty" in said and "dev, 11 images" in said
    assert f"skipped images that only some have captioned: 1, such as '{gone[0]}'" in said


def test_the_data_is_found_where_the_runs_were_trained(capsys, photographs, tmp_path):
    run, other = photographs.run_dir, shutil.copytree(photographs.run_dir, tmp_path / "other")
    (other / "data_dir.txt").unlink()
    for pair in ((run, other), (other, run), (run / "evaluation" / "dev", other)):
        assert "dev, 3 images" in compared(capsys, *pair)
    assert "--data-dir" in refused(capsys, other, other)

    data_dir = shutil.copytree(photographs.data_dir, tmp_path / "flickr8k")
    (other / "data_dir.txt").write_text(f"{data_dir}\n", "utf-8")
    said = refused(capsys, run, other)
    recorded = (run / "data_dir.txt").read_text("utf-8").strip()  # another process may have trained
    assert f"different folders: {recorded}, {data_dir.resolve()}. " in said
    assert main([str(run), str(other), "--data-dir", str(data_dir)]) == 0


def test_evaluations_on_other_data_are_not_compared(capsys, soft_run, copy):
    rewrite(copy, "report.json", lambda report: report.update(split_fingerprint="0" * 64))
    said = refused(capsys, soft_run, copy)
    assert str(copy) in said and "other images or captions" in said
    rewrite(copy, "report.json", lambda report: report.update(system="ram"))
    assert "only captioners can be compared" in refused(capsys, soft_run, copy)


def test_scores_of_several_tokenisers_or_languages_are_not_compared(capsys, soft_run, copy):
    rewrite(copy, "report.json", lambda report: report.update(tokeniser="characters"))
    said = refused(capsys, soft_run, copy)
    assert "as en:characters" in said and "as en:ptb" in said and "`--score-tokens`" in said
    other = shutil.copytree(copy, copy.with_name("other"))
    said = compared(capsys, copy, other)
    assert "Signature: lang:en|nrefs:5|tok:characters-" in said
    assert said.count("not comparable with scores over words") == 1

    def in_german(report):
        report["configuration"]["data"]["language"] = "de"

    rewrite(copy, "report.json", in_german)
    assert "as de:characters" in refused(capsys, other, copy)


def test_a_run_that_was_not_evaluated_is_an_error_that_says_how(capsys, soft_run, copy):
    (copy / "evaluation" / "dev" / "captions.json").unlink()
    said = refused(capsys, soft_run, copy)
    assert "captions.json is missing: run `python -m training.evaluate` again" in said
    for content in ("no JSON", "[]"):
        (copy / "evaluation" / "dev" / "report.json").write_text(content)
        assert "report.json is not the report of an evaluation" in refused(capsys, soft_run, copy)
    (copy / "evaluation" / "dev" / "report.json").unlink()
    said = refused(capsys, soft_run, copy)
    assert "is not a run and holds no evaluation: no report.json" in said
    shutil.copy(soft_run / "config.json", copy)
    run = copy.rename(copy.with_name("my copy"))
    said = refused(capsys, soft_run, run)
    assert "report.json" in said and f"training.evaluate --run-dir '{run}' --split dev" in said


def test_scores_by_other_boxes_are_left_out(capsys, copy):
    def with_boxes(boxes):
        return lambda report: report | {"grounding": {"boxes": boxes}}

    def with_phrases(rows):
        return [row | {"grounding": {"pointing_game": 1.0, "phrases": 2}} for row in rows]

    other = copy.with_name("other")
    shutil.copytree(copy, other)
    for run, boxes in ((copy, "one"), (other, "one")):
        rewrite(run, "report.json", with_boxes(boxes))
        rewrite(run, "captions.json", with_phrases)
    assert numbers(compared(capsys, copy, other), "pointing_game")
    rewrite(other, "report.json", with_boxes("another"))
    said = compared(capsys, copy, other)
    assert not numbers(said, "pointing_game") and "pointing_game left out: the evaluations" in said
