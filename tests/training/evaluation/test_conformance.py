"""Scores that other projects print for their own examples: clipscore and nlg-eval.

The examples are not part of the repository: `SAT_TF_TEST_DATA/conformance` holds them.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from training.evaluate import main
from training.evaluation.scores import score_captions

USES_METEOR = True  # see tests/training/conftest.py

METRICS = ("bleu_1", "bleu_2", "bleu_3", "bleu_4", "meteor", "rouge_l", "cider")

# Scale 0-1. All of them come out, although nlg-eval splits its tokens at spaces and here the PTB
# tokeniser does: its examples are lower case and have no punctuation.
CLIPSCORE = (0.6667, 0.4899, 0.3469, 0.0000, 0.3444, 0.4280, 0.5637)
NLG_EVAL = (0.55, 0.428174, 0.284043, 0.201143, 0.295797, 0.522104, 1.242192)
# nlg-eval's test asserts no BLEU-4: no n-gram of four words matches. Its CIDEr of one image is 0,
# which we call undefined.
NLG_EVAL_TEST = (0.799999, 0.632455, 0.5108729, None, 0.44434387, 0.9070631, None)

pytestmark = [
    pytest.mark.slow,  # METEOR's tables are indexed
    pytest.mark.usefixtures("meteor_cache"),
]


def clipscore(folder: Path) -> tuple[dict, dict]:
    """Captions and references by image id."""
    captions = json.loads((folder / "clipscore" / "good_captions.json").read_text())
    references = json.loads((folder / "clipscore" / "refs.json").read_text())
    return captions, {image: references[image] for image in captions}


def nlg_eval(folder: Path) -> tuple[dict, dict]:
    captions, *references = (
        (folder / "nlg_eval" / f"{name}.txt").read_text().splitlines()
        for name in ("hyp", "ref1", "ref2")
    )
    ids = [f"image{n}" for n in range(len(captions))]
    pairs = map(list, zip(*references, strict=True))
    return dict(zip(ids, captions, strict=True)), dict(zip(ids, pairs, strict=True))


def assert_scores(scores: dict, printed: tuple, digits: int) -> None:
    for metric, value in zip(METRICS, printed, strict=True):
        if value is not None:
            # A printed value may be cut off instead of rounded: one unit of its last digit.
            # They print a tiny constant where nothing matches, which we call undefined.
            assert (scores[metric] or 0.0) / 100 == pytest.approx(value, abs=10.0**-digits), metric


def test_nlg_eval_s_own_test_gets_its_scores():
    references = {"image": ["this is a test", "this is also a test"]}
    scores = score_captions({"image": "this is a good test"}, references).scores
    assert_scores(scores, NLG_EVAL_TEST, 6)
    assert np.isnan(scores["cider"])


@pytest.mark.parametrize(
    ("examples", "printed", "digits"),
    [(clipscore, CLIPSCORE, 4), (nlg_eval, NLG_EVAL, 6)],
)
def test_the_command_reports_the_same_scores(conformance, tmp_path, examples, printed, digits):
    captions, references = examples(conformance)
    data = tmp_path / "data"
    data.mkdir()
    rows = []
    for image, texts in references.items():
        Image.fromarray(np.zeros([8, 8, 3], np.uint8)).save(data / f"{image}.png")
        rows.append({"image": f"{image}.png", "captions": texts, "split": "test"})
    (data / "captions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = [{"image_id": f"{image}.png", "caption": text} for image, text in captions.items()]
    (tmp_path / "given.json").write_text(json.dumps(given))
    flags = ["--captions", str(tmp_path / "given.json"), "--data.name", "folder", "--split", "test"]
    assert main([*flags, "--data-dir", str(data), "--out", str(tmp_path / "out")]) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["tokeniser"] == "ptb"
    assert_scores(report["scores"], printed, digits)
