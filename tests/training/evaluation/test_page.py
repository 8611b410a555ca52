"""The page of an evaluation holds scores, captions and maps, in one file."""

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image

import sat_tf
from tests.page_data import decode_map, embedded
from training.evaluation.confidence import WordConfidence, reliability
from training.evaluation.evaluation import reliability_chart


@pytest.fixture(params=["soft_run", "none_run"])
def run_dir(request):
    return request.getfixturevalue(request.param)


def data_of(run_dir) -> dict:
    return embedded((run_dir / "evaluation" / "dev" / "index.html").read_text("utf-8"))


def test_the_page_shows_the_report(run_dir):
    data = data_of(run_dir)
    report = json.loads((run_dir / "evaluation" / "dev" / "report.json").read_text())
    shown = {row["name"]: row["value"] for row in data["scores"]}
    assert shown["bleu_4"] == "undefined" and report["scores"]["bleu_4"] is None  # hardly trained
    labels = [row["label"] for row in data["scores"] if "label" in row]
    assert labels[:2] == ["CIDEr", "BLEU-4"] and len(labels) <= 3
    assert shown["bleu_1"] == f"{report['scores']['bleu_1']:.2f}"
    assert data["common"]["lang"] == "en" and data["notes"][:-1] == report["notes"]
    assert data["notes"][-1].endswith(f": {report['signature']}")


def test_the_page_has_each_caption_with_its_image_and_maps(run_dir):
    data = data_of(run_dir)
    rows = json.loads((run_dir / "evaluation" / "dev" / "captions.json").read_text())
    assert [image["name"] for image in data["images"]] == [row["image_id"] for row in rows]
    height, width = sat_tf.load(run_dir).grid
    attends = data["common"]["kind"] != "none"
    for image, row in zip(data["images"], rows, strict=True):
        best = image["hypotheses"][0]
        assert best["text"] == row["caption"] and len(image["references"]) == 5
        photograph = Image.open(io.BytesIO(base64.b64decode(image["image"].partition(",")[2])))
        assert max(photograph.size) == 480
        for word in best["words"]:
            assert (word["map"] is not None) == attends and word["log_prob"] <= 0
            if attends:
                shown = decode_map(word, best["peak"], (height, width))
                assert shown.sum() == pytest.approx(1, abs=0.2)


def test_the_chart_of_confidence_has_a_bar_for_each_bin_with_words():
    words = WordConfidence(np.tile([0.05, 0.54, 0.56, 0.95], 50), np.tile([0, 1, 0, 1], 50), None)
    bins = reliability(words._replace(image=np.arange(200)), bins=10)
    (drawn,) = reliability_chart(bins, "characters")
    assert [bar[2:] for bar in drawn["bars"]] == [
        [0.0, "50 characters, confidence 5 %, right 0 %"],
        [50.0, "100 characters, confidence 55 %, right 50 %"],
        [100.0, "50 characters, confidence 95 %, right 100 %"],
    ]
    assert reliability_chart(bins | {"words": bins["words"] // 2}) == []  # too few
