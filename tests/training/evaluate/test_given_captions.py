"""Captions from elsewhere: the same figures, the same report, beside a run in a comparison."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.training.small_runs import report_of
from training import compare
from training.evaluate.command import main

DRAWN = ("--data.name", "scenes", "--data.limit", "12")


@pytest.fixture
def theirs(soft_run, tmp_path) -> Path:
    """The captions of a run as somebody else would hand them in."""
    rows = json.loads((soft_run / "evaluation" / "dev" / "captions.json").read_text())
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps([{k: row[k] for k in ("image_id", "caption")} for row in rows]))
    return path


def refused(capsys, *argv) -> str:
    assert main([*map(str, argv)]) == 2
    return capsys.readouterr().err


def test_the_same_captions_get_the_same_figures_and_report(theirs, soft_run, capsys):
    assert main(["--captions", str(theirs), *DRAWN]) == 0
    out = theirs.with_suffix("") / "evaluation" / "dev"
    ours, report = report_of(soft_run / "evaluation" / "dev"), report_of(out)
    for name, value in report["scores"].items():
        assert value == pytest.approx(ours["scores"][name]), name
    assert {"bleu_4", "cider", "rouge_l", "words_colour_seen"} <= set(report["scores"])
    for key in ("split", "split_fingerprint", "images", "tokeniser", "data"):
        assert report[key] == ours[key], key
    # Only a run has probabilities to calibrate, and advice on training.
    of_the_model = {"calibration_error", "words_auroc"}
    kept = {k: v for k, v in ours["intervals"].items() if k not in of_the_model}
    assert report["intervals"] == kept
    assert report["notes"] == [
        n for n in ours["notes"] if "of the images" not in n and "The captions" not in n
    ]
    # There is no model to speak of.
    assert not {"recipe", "seed", "search"} & set(report) and "nll" not in report["scores"]
    assert "pointing_game" not in report["scores"]
    said = capsys.readouterr().out
    assert "bleu_4" in said and "Note: METEOR is left out" in said and str(out) in said


def test_the_report_says_where_the_captions_came_from(theirs, tmp_path):
    out = tmp_path / "out"
    assert main(["--captions", str(theirs), *DRAWN, "--out", str(out)]) == 0
    digest = hashlib.sha256(theirs.read_bytes()).hexdigest()
    assert report_of(out)["captions"] == {"file": "theirs.json", "sha256": digest}
    assert digest in (out / "report.md").read_text()


def test_they_do_not_overwrite_the_report_of_a_run_of_the_same_name(tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").touch()
    (tmp_path / "mine.json").write_text("[]")
    said = refused(capsys, "--captions", tmp_path / "mine.json", *DRAWN)
    assert (
        said.startswith("Error: ") and "--out" in said and f"{tmp_path / 'mine'} is a run" in said
    )


def test_they_are_not_overwritten_themselves(tmp_path, capsys):
    path = tmp_path / "mine" / "captions.json"
    path.parent.mkdir()
    path.write_text("[]")
    (tmp_path / "link").symlink_to(path.parent)
    for out in (path.parent, tmp_path / "link"):
        flags = ["--captions", str(path), "--data.name", "scenes", "--out", str(out)]
        assert main(flags) == 2
        assert (
            "`--out`: expected a folder where the report does not replace"
            in capsys.readouterr().err
        )
    assert path.read_text() == "[]"


def test_they_stand_beside_a_run(theirs, soft_run, none_run, capsys):
    assert main(["--captions", str(theirs), *DRAWN]) == 0
    capsys.readouterr()
    runs = [str(path) for path in (theirs.with_suffix(""), soft_run, none_run)]
    assert compare.main([*runs, "--samples", "5"]) == 0
    said = capsys.readouterr().out
    assert "dev, 12 images" in said and "+0.00  [+0.00, +0.00]" in said


def test_captions_of_photographs_are_scored_with_the_data_folder(photographs, capsys):
    path = photographs.run_dir / "evaluation" / "dev" / "captions.json"
    out = photographs.run_dir.parent / "given"
    flags = ["--data.name", "flickr8k", "--data-dir", str(photographs.data_dir)]
    assert main(["--captions", str(path), *flags, "--out", str(out)]) == 0
    assert report_of(out)["images"] == 3
    capsys.readouterr()
    runs = [str(photographs.run_dir), str(out), "--data-dir", str(photographs.data_dir)]
    assert compare.main([*runs, "--samples", "5"]) == 0
    assert "dev, 3 images" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[1:], "1 of 12 images of the dev split have no caption, such as"),
        (lambda rows: [*rows, {"image_id": 7, "caption": "a"}], "such as '7'"),
        (lambda rows: {"rows": rows}, "expected a list of captions"),
    ],
)
def test_captions_that_do_not_fit_are_one_clear_error(theirs, capsys, change, message):
    theirs.write_text(json.dumps(change(json.loads(theirs.read_text()))))
    said = refused(capsys, "--captions", theirs, *DRAWN)
    assert said.startswith("Error: ") and message in said and str(theirs) in said
    assert not theirs.with_suffix("").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "got neither"),
        (("--captions", "FILE", "--run-dir", "RUN"), "got both"),
        (("--captions", "FILE"), "`--data.name`"),
        (("--captions", "FILE", *DRAWN, "--beam", "3"), "`--beam`"),
        (("--captions", "FILE", *DRAWN, "--length-power", "1"), "`--length-power`"),
        (("--captions", "FILE", *DRAWN, "--figures", "3"), "`--figures`"),
        (("--run-dir", "RUN", "--data.seed", "0"), "`--data.seed`"),
        (("--captions", "nowhere.json", *DRAWN), "nowhere.json"),
        (("--captions", "FILE", "--data.name", "flickr8k"), "--data-dir"),
        (("--captions", "FILE", *DRAWN, "--split", "middle"), "`split`"),
    ],
)
def test_flags_that_do_not_go_together_are_errors_that_name_them(theirs, capsys, argv, message):
    said = refused(capsys, *(word.replace("FILE", str(theirs)) for word in argv))
    assert said.startswith("Error: ") and message in said
