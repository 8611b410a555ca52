"""Captions of uploads over HTTP; whatever goes wrong, in words and with a fitting status."""

import base64
import dataclasses
import io
import socket

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from serving.web.app import Page
from tests.digits.page.scripted import view_of
from tests.image_files import encode, exif_of
from tests.page_data import decode_map
from tests.serving.web.page_fixtures import listening, page_of, photograph
from tests.serving.web.scripted_model import GRID, PLACES, ScriptedModel, serve

MOST = 200_000  # bytes of the page without its samples


@pytest.fixture(scope="module")
def soft():
    """A page in front of soft attention, by HTTP."""
    with page_of(view_of({}), soft=ScriptedModel()) as page:
        yield TestClient(page.app())


def upload(client: TestClient, content: bytes, name: str = "photo.jpg", **fields):
    return client.post("/api/caption", files={"image": (name, content)}, data=fields)


def test_a_photograph_is_answered_in_the_viewers_form(soft):
    answer = upload(soft, photograph(120, 80)).json()
    assert answer["kind"] == "soft" and answer["grid"] == list(GRID)
    assert answer["crop"] == [round(1 / 6, 5), 0.0, round(5 / 6, 5), 1.0]
    best, other = answer["hypotheses"]
    assert (best["text"], other["text"]) == ("a dog runs", "a cat")
    assert best["words"][0]["beta"] == 0.5
    assert best["words"][0]["log_prob"] == pytest.approx(np.log(0.5), abs=1e-4)
    for hypothesis, places in ((best, PLACES), (other, PLACES[::-1])):
        for word, place in zip(hypothesis["words"], places, strict=False):
            found = decode_map(word, hypothesis["peak"], answer["grid"])
            assert np.unravel_index(found.argmax(), GRID) == place
    turned = encode(Image.open(io.BytesIO(photograph(120, 80))), "JPEG", exif=exif_of(6))
    assert upload(soft, turned).json()["crop"][0] == 0.0


@pytest.mark.parametrize("kind", ["TIFF", "HEIF"])
def test_a_format_that_browsers_do_not_show_comes_back_as_one_they_do(soft, kind):
    if kind == "HEIF":
        pytest.importorskip("pillow_heif").register_heif_opener()
    answer = upload(soft, photograph(kind=kind)).json()
    content = base64.b64decode(answer["image"].partition("base64,")[2])
    assert Image.open(io.BytesIO(content)).size == (120, 80)
    assert "image" not in upload(soft, photograph()).json()


@pytest.mark.parametrize(
    ("content", "status", "says"),
    [
        (b"", 400, "The file is empty"),
        (b"text called .jpg", 400, "cannot be read as an image: the bytes are no image"),
        (b"\0\0\0\x18ftypheic" + bytes(40), 400, "a HEIC that cannot be read"),
        (
            encode(Image.new("1", (10_000, 10_000)), "PNG"),
            413,
            "10,000 x 10,000 pixels, more than are read: at most 67 mega",
        ),
        (bytes(21 * 2**20), 413, "larger than 20 MB"),
    ],
    ids=["empty", "text", "heic", "100 megapixels", "21 MB"],
)
def test_what_cannot_be_captioned_is_told_in_words(soft, content, status, says):
    answer = upload(soft, content)
    assert answer.status_code == status and says in answer.json()["error"]
    assert upload(soft, photograph()).status_code == 200  # and the page still works


def test_a_captioner_is_asked_by_its_name_and_explains_a_sentence_if_there_is_one():
    asked = []

    async def captioner(content, sentence):
        asked.append(sentence)
        return {"unknown": []}

    client = TestClient(Page({"a": None, "one": captioner}, hosts=("testserver",)).app())
    for sentence in ({"sentence": "A dog"}, {"sentence": ""}, {}):
        answer = upload(client, photograph(), model="one", **sentence)
        assert answer.json() == {"unknown": []} and asked.pop() == sentence.get("sentence")


def test_a_model_server_that_is_away_is_told():
    with serve(ScriptedModel()) as port:
        pass
    with page_of(soft=port) as page:
        answer = upload(TestClient(page.app()), photograph())
    assert answer.status_code == 503 and "does not answer" in answer.json()["error"]


@pytest.mark.parametrize(
    ("request_of", "status"),
    [
        (lambda client: client.post("/api/caption", data={"model": "soft"}), 400),
        (lambda client: upload(client, photograph(), model="nobody"), 404),
        (lambda client: client.post("/api/caption", content=iter([b"x"])), 411),
        (
            lambda client: client.post(
                "/api/caption", content=b"x", headers={"content-type": "multipart/form-data"}
            ),
            400,
        ),
        (lambda client: client.post("/api/caption", headers={"origin": "http://evil.org"}), 403),
        (lambda client: client.post("/api/caption", headers={"origin": "http://[::1"}), 403),
        (lambda client: client.get("/samples/..%2fpage.py"), 404),
        (lambda client: client.get("/assets/app.py"), 404),
    ],
    ids=["no image", "model", "no length", "no form", "other site", "no site", "sample", "asset"],
)
def test_a_wrong_request_is_told_in_words(soft, request_of, status):
    answer = request_of(soft)
    assert answer.status_code == status and answer.json()["error"]


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("captions.example.org", "https://captions.example.org", 404),  # as there is no model
        ("127.0.0.1:7860", "https://captions.example.org", 404),  # nginx's default
        ("127.0.0.1:7860", "https://other.example.org:8443", 404),
        ("127.0.0.1:7860", "https://other.example.org", 403),
        ("127.0.0.1:7860", "https://evil.example", 403),
        ("127.0.0.1:7860", "http://localhost:3000", 403),
        ("127.0.0.1:7860", "null", 403),
    ],
)
def test_a_proxy_may_keep_the_name_or_ask_under_its_own(host, origin, status):
    hosts = ("127.0.0.1", "localhost", "captions.example.org", "other.example.org")
    proxies = ("Captions.example.org", "other.example.org:8443")
    with TestClient(Page({}, hosts=hosts, proxies=proxies).app()) as client:
        assert client.get("/", headers={"host": host}).status_code == 200
        headers = {"host": host, "origin": origin}
        answer = client.post("/api/caption", data={"model": "soft"}, headers=headers)
    assert answer.status_code == status
    assert ("Another site's page" in answer.json()["error"]) == (status == 403)


def test_an_export_without_attention_is_shown_too():
    with page_of(none=ScriptedModel(kind="none", resize="squash")) as page:
        none = upload(TestClient(page.app()), photograph()).json()
    assert none["kind"] == "none" and none["grid"] is None and none["crop"] == [0, 0, 1, 1]
    assert none["hypotheses"][0]["words"][0]["map"] is None


ASSETS = {"/": "page.css page.js", "/digits": "page.css digits.css digits.js"}


@pytest.mark.parametrize("path", ASSETS)
def test_a_page_is_small_and_asks_for_nothing_elsewhere(soft, path):
    assets = ["viewer.css", "viewer.js", "ask.js", *ASSETS[path].split()]
    answers = [soft.get(path), *(soft.get(f"/assets/{name}") for name in assets)]
    assert all(answer.status_code == 200 for answer in answers)
    assert sum(len(answer.content) for answer in answers) < MOST
    assert "default-src 'none'" in answers[0].headers["content-security-policy"]
    for answer in answers:
        assert "http" not in answer.text.replace("http://www.w3.org/2000/svg", "")


def test_every_sample_is_small_and_names_its_source(soft):
    for sample in soft.get("/api/page").json()["samples"]:
        answer = soft.get(f"/samples/{sample['file']}")
        assert answer.status_code == 200 and len(answer.content) < 60_000
        assert sample["title"] and sample["source"]
        assert upload(soft, answer.content).status_code == 200


def test_an_upload_that_stalls_is_ended_and_so_is_an_idle_connection():
    head = "POST /api/caption HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n"
    head += "Content-Type: multipart/form-data; boundary=x\r\n\r\n--x"
    page = Page({}, upload_seconds=0.1)
    with listening(page, timeout_keep_alive=1) as address:
        for sent, answer in ((head, b"HTTP/1.1 408 "), ("", b"")):
            place = ("127.0.0.1", int(address.rpartition(":")[2]))
            with socket.create_connection(place, timeout=60) as connection:
                connection.sendall(sent.encode())
                assert connection.recv(len(answer) or 1) == answer


def test_only_this_machines_names_are_served(soft):
    assert soft.get("/", headers={"host": "rebound.example"}).status_code == 400


def test_no_type_is_guessed_and_other_sites_start_nothing():
    opened = []
    view = dataclasses.replace(view_of({}), opened=lambda: opened.append(True))
    page = Page({}, [view], hosts=("testserver",))
    client = TestClient(page.app())
    for path in ("/", "/assets/viewer.js", "/nowhere"):
        assert client.get(path).headers["x-content-type-options"] == "nosniff"
    for site, count in (("cross-site", 0), ("same-site", 0), ("none", 1), ("same-origin", 2)):
        client.get("/api/digits", headers={"sec-fetch-site": site})
        assert len(opened) == count
