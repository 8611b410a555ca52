"""Data of the viewer: maps that survive their encoding, crops, pages that no text can break."""

import math
import re

import numpy as np
import pytest

from sat_tf.inference.viewer import asset, crop_of, hypothesis_data, report_page
from tests.page_data import decode_map, embedded


def test_maps_survive_their_encoding():
    alpha = np.random.default_rng(0).dirichlet(np.ones(12), size=3).reshape(3, 3, 4)
    data = hypothesis_data(("a", "red", "dog"), "a red dog", -1.5, alpha, np.array([0.1, 0.5, 0.9]))
    assert [word["beta"] for word in data["words"]] == [0.1, 0.5, 0.9]
    for word, expected in zip(data["words"], alpha, strict=True):
        found = decode_map(word, data["peak"], (3, 4))
        np.testing.assert_allclose(found, expected, atol=alpha.max() / 255)
    data = hypothesis_data(("dog",), "dog", -0.5, log_probs=np.array([-0.25]))
    assert data["words"] == [{"text": "dog", "log_prob": -0.25, "beta": None, "map": None}]


@pytest.mark.parametrize(
    ("height", "width", "resize", "expected"),
    [
        (100, 200, "crop", [0.25, 0.0, 0.75, 1.0]),
        (200, 100, "crop", [0.0, 0.25, 1.0, 0.75]),
        (200, 100, "squash", [0.0, 0.0, 1.0, 1.0]),
    ],
)
def test_the_crop_is_what_the_model_sees(height, width, resize, expected):
    assert crop_of(height, width, resize) == expected


def test_no_text_leaves_its_place_in_the_page():
    wicked = '</script><script>alert("x")</script><!--'
    image = {"image": "data:,", "name": wicked, "hypotheses": [hypothesis_data((), wicked, 0.0)]}
    page = report_page(wicked, [image], notes=[wicked])
    assert "<script>alert" not in page and '<html lang="en">' in page
    assert embedded(page)["images"][0]["name"] == wicked


def test_a_page_asks_for_nothing_outside_itself():
    page = report_page("A report", [])
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert "http" not in asset("viewer.js").replace("http://www.w3.org/2000/svg", "")


def test_numbers_that_are_not_finite_are_missing():
    hypothesis = hypothesis_data(("a",), "a", math.nan, log_probs=np.array([-math.inf]))
    image = {"image": "data:,", "name": "a", "hypotheses": [hypothesis], "rank": math.nan}
    page = report_page("Captions", [image])
    assert "NaN" not in page.split('id="data">')[1].split("</script>")[0]
    (found,) = embedded(page)["images"]
    assert found["rank"] is None and found["hypotheses"][0]["score"] is None
    assert found["hypotheses"][0]["words"][0]["log_prob"] is None
