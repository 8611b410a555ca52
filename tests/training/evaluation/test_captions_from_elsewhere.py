"""Captions from elsewhere: their forms, the same figures, a comparison with a run."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from sat_tf.inference.captions import Caption
from tests.training.small_runs import report_of
from training.data.examples import DataError, Example, Split
from training.evaluate import main
from training.evaluation.report import caption_rows, captions_of, parse_captions, read_grounding

PATH = Path("theirs.json")
PIXELS = np.zeros([2, 2, 3], np.uint8)
SPLIT = Split("dev", tuple(Example(i, PIXELS, ("c",)) for i in "abc"), (("d", "no file"),))


def parse(rows) -> dict[str, str]:
    return parse_captions(json.dumps(rows).encode(), PATH)


def test_what_is_written_is_read_again(tmp_path):
    text, maps = "caf\u00e9 \u72d7", (np.zeros(2), None, None)
    written = Caption(text, tuple(text.split()), -1.5, -1.5, *maps)
    path = tmp_path / "captions.json"
    rows = caption_rows({"x": written, "y": written}, {"y": {"pointing_game": 50.0}})
    path.write_text(json.dumps(rows), "utf-8")
    row = {"image_id": "x", "caption": text, "score": -1.5, "alternatives": []}
    grounded = row | {"image_id": "y", "grounding": {"pointing_game": 50.0}}
    assert json.loads(path.read_text("utf-8")) == [row, grounded]
    assert parse_captions(path.read_bytes(), path) == {"x": text, "y": text}
    assert read_grounding(path) == {"y": {"pointing_game": 50.0}}


def test_results_of_coco_with_numbers_as_ids_are_read():
    rows = [{"image_id": 42, "caption": "a cat", "id": 7}, {"image_id": "9", "caption": ""}]
    assert parse(rows) == {"42": "a cat", "9": ""}
    assert parse_captions(b"\xef\xbb\xbf[]", PATH) == {}


def test_what_training_caption_prints_is_read():
    lines = b'{"image": "x/a.jpg", "caption": "a cat"}\n\n{"image": "b.jpg", "caption": ""}\n'
    assert parse_captions(lines, PATH) == {"x/a.jpg": "a cat", "b.jpg": ""}
    assert parse_captions(lines.splitlines()[0], PATH) == {"x/a.jpg": "a cat"}


def test_names_may_be_ids_of_the_caption_file():
    def split(numbers: dict[str, str]) -> Split:
        examples = tuple(Example(name, PIXELS, ("c",)) for name in numbers.values())
        return Split("dev", examples, identifiers=numbers)

    named = split({"1": "2", "2": "b.png"})
    assert captions_of(named, {"b.png": "b", "2": "a"}, PATH) == {"2": "a", "b.png": "b"}
    named = split({"1": "x/a.jpg", "2": "b.png"})
    for written in ({"2": "b", "1": "a"}, {"b": "b", "a": "a"}):
        assert captions_of(named, written, PATH) == {"x/a.jpg": "a", "b.png": "b"}
    with pytest.raises(DataError, match="'1' is the number of 2.jpg and the name of 1.jpg; write"):
        captions_of(split({"1": "2.jpg", "2": "1.jpg"}), {"1": "a", "2": "b"}, PATH)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a cat\n", "theirs.json is not JSON: "),
        (b"1", "expected [{"),
        (b'{"annotations": []}', "caption 1: expected {"),
        (b'["a cat"]', "got 'a cat'"),
        (b'[{"image_id": 1, "caption": ["a"]}]', "got {'image_id': 1"),
        (
            b'[{"image_id": 1, "caption": "a"}, {"image_id": "1", "caption": "a"}]',
            "caption 2: image '1' has one already",
        ),
    ],
)
def test_anything_else_is_an_error_that_says_where(content, message):
    with pytest.raises(DataError) as error:
        parse_captions(content, PATH)
    assert message in str(error.value) and "theirs.json" in str(error.value)


def test_missing_captions_are_named():
    with pytest.raises(DataError, match=r"2 of 3 images of the dev split .* such as 'b'"):
        captions_of(SPLIT, {"a": "1"}, PATH)
    with pytest.raises(DataError, match=r"3 of 3 .* the file names x/a, y\."):
        captions_of(SPLIT, {"x/a": "1", "y": "2"}, PATH)
    # An image that cannot be decoded needs no caption, unless there is no other.
    broken = Example("x", Path(__file__), ("c",))
    split = dataclasses.replace(SPLIT, examples=(*SPLIT.examples, broken))
    assert list(captions_of(split, dict.fromkeys("abc", "a cat"), PATH)) == ["a", "b", "c"]


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
    assert {"bleu_4", "cider", "rouge_l"} <= set(report["scores"])
    for key in ("split", "split_fingerprint", "images", "tokeniser", "data"):
        assert report[key] == ours[key], key
    # Only a run has maps, probabilities to calibrate, and advice on training.
    assert report["intervals"] == {name: ours["intervals"][name] for name in report["intervals"]}
    assert set(report["notes"]) < set(ours["notes"])
    assert not any("The captions" in note or "LiteRT" in note for note in report["notes"])
    # There is no model to speak of.
    assert not {"recipe", "seed", "search"} & set(report) and "nll" not in report["scores"]
    assert "pointing_game" not in report["scores"]
    said = capsys.readouterr().out
    assert "bleu_4" in said and "Note: METEOR is left out" in said and str(out) in said


def test_they_overwrite_neither_a_run_s_report_nor_themselves(tmp_path, capsys):
    folder = tmp_path / "mine"
    folder.mkdir()
    (tmp_path / "mine.json").write_text("[]")
    (folder / "config.json").touch()
    said = refused(capsys, "--captions", tmp_path / "mine.json", *DRAWN)
    assert "--out" in said and f"{folder} is a run" in said
    (folder / "captions.json").write_text("[]")
    (tmp_path / "link").symlink_to(folder)
    for out in (folder, tmp_path / "link"):
        said = refused(capsys, "--captions", folder / "captions.json", *DRAWN, "--out", out)
        assert "`--out`: expected a folder where the report does not replace" in said
    assert (folder / "captions.json").read_text() == "[]"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "got neither"),
        (("--captions", "FILE", "--run-dir", "RUN"), "got both"),
        (("--captions", "FILE"), "`--data.name`"),
        (("--captions", "FILE", *DRAWN, "--beam", "3"), "`--beam`"),
        (("--captions", "FILE", *DRAWN, "--figures", "3"), "`--figures`"),
        (("--run-dir", "RUN", "--data.seed", "1"), "`--data.seed`"),
        (("--captions", "FILE", "--data.name", "flickr8k"), "--data-dir"),
    ],
)
def test_flags_that_do_not_go_together_are_errors_that_name_them(theirs, capsys, argv, message):
    said = refused(capsys, *(word.replace("FILE", str(theirs)) for word in argv))
    assert said.startswith("Error: ") and message in said
