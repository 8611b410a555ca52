"""`training.evaluate --boxes`: attention on photographs against the boxes of phrases."""

import json
from pathlib import Path

import numpy as np
import pytest

import sat_tf
from sat_tf.inference.captions import Caption
from training.data.boxes import place_boxes
from training.data.captions import caption_table
from training.data.inputs import open_input_source
from training.data.readers import load_split
from training.data.readers.scenes import load as load_scenes
from training.evaluate import main
from training.evaluation.evaluation import Evaluation, page_images
from training.evaluation.grounding import ground
from training.evaluation.pointing import SIZES
from training.evaluation.reading import Reading
from training.run.config import DataConfig

LEFT = [0.0, 0.0, 0.5, 1.0]
SMALL = [0.25, 0.25, 0.5, 0.5]


def phrase(image: str, caption: int = 0, **changes) -> dict:
    row = {"image": image, "caption": caption, "phrase": "A devword dog", "span": [0, 3]}
    return row | {"entity": "1", "type": ["animals"], "boxes": [LEFT]} | changes


def write(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def boxes(tmp_path) -> Path:
    rows = [phrase(f"dev{n}.jpg", k) for n in range(3) for k in range(2)]
    rows.append(phrase("dev0.jpg", 1, boxes=[SMALL], type=["other"]))
    rows.append(phrase("dev1.jpg", 0, span=[1, 3]))  # "devword dog" is not the phrase
    rows.append(phrase("dev2.jpg", 0, boxes=[[1.5, 0, 2.0, 1]]))
    rows.append(phrase("elsewhere.jpg"))
    return write(tmp_path / "boxes.jsonl", rows)


@pytest.fixture(scope="module")
def opened(photographs):
    """The captioner, its dev split and the annotations of that."""
    captioner = sat_tf.load(photographs.run_dir, engine="keras")
    split = load_split(DataConfig("flickr8k"), "dev", photographs.data_dir)
    encoder = captioner.model.encoder
    source = open_input_source(encoder, "crop", split, photographs.cache_dir)
    return captioner, split, source


def test_the_command_reports_grounding(photographs, boxes, tmp_path):
    out = tmp_path / "out"
    flags = ["--run-dir", photographs.run_dir, "--data-dir", photographs.data_dir]
    flags += ["--cache-dir", photographs.cache_dir, "--boxes", boxes, "--out", out]
    assert main([*map(str, flags)]) == 0
    report = json.loads((out / "report.json").read_text())
    scores = report["scores"]
    for metric in ("pointing_game", "attention_correctness"):
        for kind in ("", "_centre", "_uniform", "_shuffled"):
            assert 0 <= scores[f"{metric}{kind}"] <= 100 and f"{metric}_small{kind}" in scores
        assert metric in report["intervals"]
    for kind in ("", "_uniform", "_other", "_gain"):
        value, *ends = report["intervals"][f"nll_phrase{kind}"].values()
        assert value == scores[f"nll_phrase{kind}"] and ends == [None, None]  # of three images
    details = report["grounding"]
    assert details["phrases"] == 7
    assert details["by_type"]["animals"]["phrases"] == 6
    assert sum(details["skipped"].values()) == 2

    rows = {row["image_id"]: row for row in json.loads((out / "captions.json").read_text())}
    of_images = [row["grounding"] for row in rows.values()]
    for name, size in SIZES.items():
        own = [row for row in of_images if name in row]
        mean = np.average([row[name] for row in own], weights=[row[size] for row in own])
        assert scores[name] == pytest.approx(mean, rel=1e-5)
    assert rows["dev0.jpg"]["grounding"]["phrases"] == 3
    assert rows["dev0.jpg"]["grounding"]["phrases_small"] == 1
    assert rows["dev0.jpg"]["grounding"]["phrase_words"] == 9
    assert "pointing_game_small" not in rows["dev1.jpg"]["grounding"]


def test_a_captioner_without_attention_has_nats_and_no_maps(none_run, tmp_path):
    (first,) = load_scenes("dev", count=1).examples
    words = first.captions[0].split()
    row = {"image": first.image_id, "caption": 0, "phrase": " ".join(words[:2]), "span": [0, 2]}
    path = write(tmp_path / "boxes.jsonl", [row | {"boxes": [LEFT]}])
    flags = ["--run-dir", none_run, "--boxes", path, "--out", tmp_path / "out", "--figures", "1"]
    assert main([*map(str, flags)]) == 0
    scores = json.loads((tmp_path / "out" / "report.json").read_text())["scores"]
    assert scores["nll_phrase"] > 0
    assert not any(name.startswith(("pointing", "nll_phrase_gain")) for name in scores)
    assert first.image_id in (tmp_path / "out" / "index.html").read_text()


def placed(split, boxes):
    return place_boxes(boxes, split, "crop")


def test_uniform_maps_have_the_share_of_the_boxes(opened, boxes):
    captioner, split, source = opened
    found = ground(Reading(*opened), placed(split, boxes), {})
    # The encoder sees the central square of 4 : 3, in which the small box is 1/3 wide.
    expected = 100 * np.mean([0.5] * 6 + [1 / 3 * 1 / 4])
    assert found.scores["attention_correctness_uniform"] == pytest.approx(expected)
    assert found.scores["attention_correctness_small_uniform"] == pytest.approx(100 / 12)


def test_nats_are_those_of_the_words_in_the_phrase(opened, tmp_path):
    captioner, split, source = opened
    path = write(tmp_path / "one.jsonl", [phrase("dev0.jpg")])
    reading = Reading(*opened)
    found = ground(reading, placed(split, path), {}).scores
    ids = caption_table(split, captioner.vocabulary).tokens[0]
    annotations = np.asarray(reading.annotations(np.array([0])), np.float32)
    mean = np.broadcast_to(annotations.mean(1, keepdims=True), annotations.shape)
    for name, inputs in (("nll_phrase", annotations), ("nll_phrase_uniform", mean)):
        log_lik, _ = reading.words(inputs, [ids])
        assert found[name] == pytest.approx(-log_lik[0, :3].mean(), rel=1e-5)


def test_own_words_are_scored_where_they_stand(opened, boxes):
    captioner, split, source = opened
    alpha = np.zeros([2, *captioner.grid])
    alpha[0, :, -1], alpha[1, :, 0] = 1, 1  # "dog" looks at the left edge
    alpha /= alpha.sum(axis=(1, 2), keepdims=True)
    own = Caption("a dog", ("a", "dog"), 0.0, 0.0, np.zeros(2), alpha, np.ones(2))
    grounded = ground(Reading(*opened), placed(split, boxes), {"dev1.jpg": own})
    found = grounded.scores
    assert found["generated_match_rate"] == pytest.approx(100 / 3)
    assert found["generated_attention_correctness"] == pytest.approx(100)
    # The page shows the box of "dog" in the central square of 4 : 3, and none for "a".
    evaluation = Evaluation({}, {"dev1.jpg": own}, {"dev1.jpg": 0.0}, grounded)
    ((entry,),) = [list(page_images(Reading(*opened), evaluation, 3))]
    article, dog = entry["hypotheses"][0]["words"]
    assert "boxes" not in article and dog["boxes"] == [[0.0, 0.0, 1.0, 0.5]]


def test_a_missing_or_wrong_file_is_an_error_before_annotations_are_computed(
    photographs, tmp_path, capsys, monkeypatch
):
    def too_late(*_):
        raise AssertionError("annotations are computed")

    monkeypatch.setattr("training.evaluation.evaluation.open_input_source", too_late)
    path = write(tmp_path / "boxes.jsonl", [phrase("elsewhere.jpg")])
    flags = ["--run-dir", photographs.run_dir, "--data-dir", photographs.data_dir]
    assert main([*map(str, flags), "--boxes", str(tmp_path / "none")]) == 2
    assert "`--boxes`: expected a file or folder of boxes" in capsys.readouterr().err
    assert main([*map(str, flags), "--boxes", str(path)]) == 2
    assert "no usable phrase of the dev split" in capsys.readouterr().err
