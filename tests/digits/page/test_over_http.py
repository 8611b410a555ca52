"""Readings of drawings over HTTP; errors in words and with a fitting status."""

import base64

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import digits
from digits import page as digits_page
from tests.digits.small_readers import drawing
from tests.image_files import encode
from tests.serving.web.page_fixtures import page_of
from tests.serving.web.scripted_model import ScriptedModel


@pytest.fixture(scope="module")
def client():
    app = page_of(digits_page.models(), soft=ScriptedModel())
    return TestClient(app, "http://127.0.0.1:7860")


def upload(client, pixels: np.ndarray, **fields):
    files = {"image": ("drawing.png", encode(Image.fromarray(pixels), "PNG"))}
    return client.post("/api/digits", files=files, data=fields)


@pytest.mark.parametrize("name", digits.names())
def test_a_drawing_is_answered_look_by_look(client, name):
    answer, expected = (
        upload(client, drawing(), model=name).json(),
        digits.load(name).read(drawing()),
    )
    assert answer["answers"][np.argmax(answer["steps"][-1]["probabilities"])] == expected.answer
    for key in ("corners", "probabilities"):
        found = [step[key] for step in answer["steps"]]
        np.testing.assert_allclose(found, getattr(expected, key), atol=1e-4)
    image = np.frombuffer(base64.b64decode(answer["image"]), np.uint8) / 255
    np.testing.assert_allclose(image.reshape([answer["size"]] * 2), expected.image, atol=1 / 255)
    patches = [[len(base64.b64decode(p)) for p in step["patches"]] for step in answer["steps"]]
    looks, side, _, scales = expected.patches.shape
    assert patches == [[side**2] * scales] * looks


def test_the_models_are_listed(client):
    listed = [(one["system"], one["digits"]) for one in client.get("/api/digits").json()]
    assert listed == [("dram", 2), ("ram", 1), ("stn", 1)]


def test_a_drawing_without_ink_is_an_error_in_words(client):
    answer = upload(client, np.zeros([40, 40], np.uint8), model="ram_28")
    assert answer.status_code == 400 and "there is no ink in it" in answer.json()["error"]
    assert upload(client, drawing(), model="ram_28").status_code == 200  # and the page still works


def test_a_page_without_digit_models_has_no_such_view(client):
    assert client.get("/api/page").json()["views"] == [{"path": "digits", "title": "Digits"}]
    alone = TestClient(page_of(soft=ScriptedModel()), "http://127.0.0.1:7860")
    assert alone.get("/api/page").json()["views"] == []
    assert upload(alone, drawing()).status_code == 404 == alone.get("/digits").status_code
