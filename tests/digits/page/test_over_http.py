"""Readings of drawings over HTTP; whatever goes wrong, in words and with a fitting status."""

import base64

import numpy as np
import pytest
from starlette.testclient import TestClient

from tests.digits.page.scripted import (
    ANSWER,
    CENTRES,
    CONFIGS,
    PAIR,
    ScriptedDigits,
    drawing,
    view_of,
)
from tests.serving.web.page_fixtures import page_of
from tests.serving.web.scripted_model import ScriptedModel


@pytest.fixture(scope="module")
def models():
    return {name: ScriptedDigits(config) for name, config in CONFIGS.items()}


@pytest.fixture(scope="module")
def client(models):
    return TestClient(page_of(view_of(models), soft=ScriptedModel()), "http://127.0.0.1:7860")


def upload(client, content: bytes, **fields):
    return client.post("/api/digits", files={"image": ("drawing.png", content)}, data=fields)


def test_a_drawing_is_answered_look_by_look(client, models):
    answer = upload(client, drawing(), model="ram").json()
    assert answer["size"] == 28 and answer["answers"] == list(map(str, range(10)))
    assert len(answer["steps"]) == len(CENTRES)
    for step, centre in zip(answer["steps"], CENTRES, strict=True):
        np.testing.assert_allclose(np.mean(step["corners"], axis=0), centre, atol=1e-3)
        assert len(base64.b64decode(step["patches"][0])) == step["side"] ** 2
    last = answer["steps"][-1]["probabilities"]
    assert answer["answers"][np.argmax(last)] == ANSWER
    # The model got what the page shows.
    shown = np.frombuffer(base64.b64decode(answer["image"]), np.uint8).reshape(28, 28)
    np.testing.assert_allclose(shown / 255, models["ram"].images[-1], atol=1 / 255)


@pytest.mark.parametrize(("system", "answer", "size"), [("dram", PAIR, 60), ("stn", ANSWER, 42)])
def test_every_model_gets_images_of_its_own_size(client, system, answer, size):
    found = upload(client, drawing(), model=system).json()
    assert found["size"] == size
    assert found["answers"][np.argmax(found["steps"][-1]["probabilities"])] == answer
    digits = client.get("/api/digits").json()
    assert [(d["system"], d["digits"]) for d in digits] == [("ram", 1), ("dram", 2), ("stn", 1)]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a text called .png", "none of the formats"),
        (drawing(ink=False), "there is no ink in it"),
        (drawing(side=8), "8 x 8 pixels"),
    ],
    ids=["text", "no ink", "small"],
)
def test_what_cannot_be_read_is_told_in_words(client, content, says):
    answer = upload(client, content, model="ram")
    assert answer.status_code == 400 and says in answer.json()["error"]
    assert upload(client, drawing(), model="ram").status_code == 200  # and the page still works


def test_a_page_without_digit_models_has_no_such_view(client):
    assert client.get("/api/page").json()["views"] == [{"path": "digits", "title": "Digits"}]
    alone = TestClient(page_of(soft=ScriptedModel()), "http://127.0.0.1:7860")
    assert alone.get("/api/page").json()["views"] == []
    assert upload(alone, drawing()).status_code == 404 == alone.get("/digits").status_code
