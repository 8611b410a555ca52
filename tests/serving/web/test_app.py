"""Captions of uploads over HTTP; failures, in words and with a fitting status."""

import base64
import importlib.util
import io
import json

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from sat_tf.inference.viewer import report_page
from serving.web.__main__ import main
from serving.web.captions import facts_of, named, samples_of
from tests.image_files import encode, exif_of
from tests.page_data import decode_map
from tests.serving.web.page_fixtures import page_of, photograph
from tests.serving.web.scripted_model import GRID, PLACES, ScriptedModel

MOST = 200_000  # bytes of the page without its samples
PAGE = "http://127.0.0.1:7860"


@pytest.fixture(scope="module")
def soft():
    """A page in front of soft attention, and of a captioner that cannot be loaded."""
    models = {"soft": ScriptedModel(familiarity=0.01), "broken": ScriptedModel(broken=True)}
    return TestClient(page_of(**models), PAGE)


def upload(client: TestClient, content: bytes, name: str = "photo.jpg", **fields):
    return client.post("/api/caption", files={"image": (name, content)}, data=fields)


def test_a_photograph_is_answered_in_the_viewers_form(soft):
    answer = upload(soft, photograph(120, 80)).json()
    assert answer["kind"] == "soft" and answer["grid"] == list(GRID)
    assert answer["crop"] == [round(1 / 6, 5), 0.0, round(5 / 6, 5), 1.0]
    assert answer["level"] == "unlike" and "expect this caption to be wrong" in answer["remarks"][0]
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


def test_a_captioner_without_attention_is_shown_too():
    none = TestClient(page_of(none=ScriptedModel(kind="none", resize="squash")), PAGE)
    answer = upload(none, photograph()).json()
    assert answer["kind"] == "none" and answer["grid"] is None and answer["crop"] == [0, 0, 1, 1]
    assert answer["hypotheses"][0]["words"][0]["map"] is None


@pytest.mark.parametrize(
    ("content", "status", "says"),
    [
        (b"", 400, "empty or missing"),
        (b"text called .jpg", 400, "none of the formats JPEG, PNG, GIF, BMP, WebP, TIFF"),
        (b"%PDF-1.7", 400, "none of the formats"),
        (b"\0\0\0\x18ftypheic" + bytes(40), 400, "HEIC"),
        (encode(Image.new("1", (10_000, 10_000)), "PNG"), 400, "10000 x 10000 pixels are too many"),
        (bytes(6 * 2**20), 413, "larger than 5 MB"),
    ],
    ids=["empty", "text", "pdf", "heic", "100 megapixels", "6 MB"],
)
def test_what_cannot_be_captioned_is_told_in_words(soft, content, status, says):
    answer = upload(soft, content)
    assert answer.status_code == status and says in answer.json()["error"]
    assert upload(soft, photograph()).status_code == 200  # and the page still works


def test_a_captioner_is_asked_by_its_name_and_explains_a_sentence_if_there_is_one():
    one = ScriptedModel()
    client = TestClient(page_of(other=None, one=one), PAGE)
    answer = upload(client, photograph(), model="one", sentence="Dogs fly").json()
    assert answer["hypotheses"][0]["text"] == "dogs fly" and answer["unknown"] == ["fly"]
    assert upload(client, photograph(), model="one").status_code == 200
    assert upload(client, photograph(), model="one", sentence="unicorns").status_code == 400
    assert one.sentences == ["Dogs fly", None, "unicorns"]


@pytest.mark.parametrize(
    ("request_of", "status"),
    [
        (lambda client: client.post("/api/caption", data={"model": "soft"}), 400),
        (lambda client: upload(client, photograph(), model="nobody"), 404),
        (lambda client: upload(client, photograph(), model="broken"), 500),
        (lambda client: client.post("/api/caption", content=iter([b"x"])), 411),
        (lambda client: client.post("/api/caption", headers={"origin": "http://evil.org"}), 403),
        (lambda client: client.post("/api/caption", headers={"origin": "null"}), 403),
        (lambda client: client.get("/samples/..%2fpage.py"), 404),
        (lambda client: client.get("/assets/app.py"), 404),
    ],
)
def test_a_wrong_request_is_told_in_words(soft, request_of, status):
    answer = request_of(soft)
    assert answer.status_code == status and answer.json()["error"]


def test_only_this_machines_names_are_served(soft):
    assert soft.get("/", headers={"host": "rebound.example"}).status_code == 400


def test_the_page_is_small_and_asks_for_nothing_elsewhere(soft):
    assets = ["viewer.css", "viewer.js", "ask.js", "page.css", "page.js"]
    answers = [soft.get("/"), *(soft.get(f"/assets/{name}") for name in assets)]
    assert all(answer.status_code == 200 for answer in answers)
    assert sum(len(answer.content) for answer in answers) < MOST
    assert "default-src 'none'" in answers[0].headers["content-security-policy"]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "http" not in answer.text.replace("http://www.w3.org/2000/svg", "")


def test_every_sample_is_small_and_names_its_source(soft):
    for sample in soft.get("/api/page").json()["samples"]:
        answer = soft.get(f"/samples/{sample['file']}")
        assert answer.status_code == 200 and len(answer.content) < 60_000
        assert sample["title"] and sample["source"]
        assert upload(soft, answer.content).status_code == 200


def test_an_own_run_has_its_name_and_the_images_of_its_report_as_samples(tmp_path):
    run = tmp_path / "my run"
    (run / "evaluation" / "dev").mkdir(parents=True)
    (run / "config.json").write_text(
        json.dumps({"attention": {"kind": "hard"}, "data": {"name": "scenes"}})
    )
    data = base64.b64encode(photograph()).decode()
    images = [{"image": f"data:image/jpeg;base64,{data}", "hypotheses": []}] * 9
    (run / "evaluation" / "dev" / "index.html").write_text(report_page("My run", images))
    runs = named([run])
    facts, (samples, files) = facts_of(runs), samples_of(runs)
    assert (facts["models"], facts["kinds"], facts["own"]) == (["my run"], ["hard"], [True])
    assert "knows nothing else" in facts["notes"][0]
    assert {one["group"] for one in samples} == {"Dev images of my run"}
    assert list(files.values()) == [photograph()] * 6
    (run / "evaluation" / "dev" / "index.html").unlink()
    assert {one["group"] for one in samples_of(runs)[0]} == {"Photographs"}


def test_folders_of_one_name_are_told_apart(tmp_path):
    folders = [tmp_path / part / "soft" for part in "ab"]
    assert named(folders) == {"soft": folders[0], "soft-2": folders[1]}


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--run-dir", "nowhere"], "There is no run folder nowhere"),
        (["--max-mb", "0"], "`--max-mb`: expected a number of"),
        (["--port", "70000"], "`--port`: expected 0 to 65535"),
    ],
)
def test_a_mistake_is_one_line(argv, says, capsys):
    assert main([*argv, "--no-browser"]) == 2
    assert says in capsys.readouterr().err


def test_missing_packages_are_named(monkeypatch, capsys):
    found = importlib.util.find_spec
    hidden = ("uvicorn", "python_multipart")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in hidden else found(name)
    )
    assert main(["--no-browser"]) == 2
    told = capsys.readouterr().err
    assert 'The page needs uvicorn, python_multipart: pip install -e ".[web]"' in told
