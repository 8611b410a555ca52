"""The client: captions by a server; the command's lines, JSON, figures, clear errors."""

import contextlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from serving import channel
from serving.client import CaptionClient, Connection, ServingError, main
from tests.image_files import encode, noise
from tests.serving import toys


@pytest.fixture
def client_of(caller, serving):
    """Makes clients of the toy server, or of a server of a folder."""
    with contextlib.ExitStack() as opened:

        def make(folder: Path | None = None, **options):
            answering = caller
            if folder:
                answering = opened.enter_context(serving(folder))
            client = CaptionClient(Connection(port=answering.server.port), **options)
            return opened.enter_context(client)

        yield make


def jpeg() -> bytes:
    return encode(Image.new("RGB", (40, 20), "blue"), "JPEG")


def test_a_caption_comes_with_its_score_and_the_others_of_the_beam(client_of):
    caption = client_of().caption(jpeg())
    assert caption.valid and caption.text == "a cat 3" and caption.version == 3
    assert caption.score == pytest.approx(-0.5)
    assert caption.alternatives == (("a dog", -1.5),)
    assert caption.words == ("a", "cat", "3")
    assert caption.alpha.shape == (3, toys.GRID, toys.GRID)
    assert [np.argmax(alpha) for alpha in caption.alpha] == [0, 1, 2]
    np.testing.assert_allclose(caption.beta, [0.5, 0.5, 0.5])
    np.testing.assert_allclose(caption.log_probs, [-0.25] * 3)


def test_limits_are_told_where_they_are_known(client_of, tmp_path):
    toys.export(tmp_path, 1, limits=True)
    found = list(client_of(tmp_path).answers([jpeg(), b"no"]))
    assert found[0].familiarity == pytest.approx(0.01)
    assert found[0].confidence == pytest.approx(0.25)
    assert (found[1].familiarity, found[1].confidence) == (None, None)
    assert client_of().caption(jpeg()).familiarity is None


def test_many_images_keep_their_order_and_requests_follow_the_label(client_of):
    images = [jpeg() if number % 3 else b"nonsense" for number in range(20)]
    captions = list(client_of().answers(images))
    assert [caption.valid for caption in captions] == [bool(n % 3) for n in range(20)]
    assert captions[0].text == "" and captions[0].alternatives == ()
    assert captions[0].reason == "not what a toy reads" and captions[1].reason == ""
    with pytest.raises(ServingError, match="Unrecognized servable version label: canary"):
        client_of(label="canary").caption(jpeg())


def test_an_answer_may_exceed_grpcs_default(client_of, tmp_path):
    toys.export(tmp_path, 1, grid=400)
    captions = client_of(tmp_path).captions([jpeg()] * 4)
    assert sum(caption.alpha.nbytes for caption in captions) > 4 * 2**20
    assert captions[3].words == ("a", "cat", "1")


@pytest.mark.parametrize("resize", ["crop", "squash"])
def test_the_fit_is_the_server_s(client_of, tmp_path, resize):
    toys.export(tmp_path, 1, resize=resize)
    assert client_of(tmp_path).resize() == resize


def answered(**outputs: tuple[int, list[int], list]) -> channel.PredictResponse:
    """An answer with these outputs: dtype, shape, values."""
    fields = {1: "float_val", 3: "int_val", 7: "string_val", 10: "bool_val"}
    response = channel.PredictResponse()
    for name, (dtype, shape, values) in outputs.items():
        tensor = response.outputs[name]
        tensor.dtype = dtype
        for size in shape:
            tensor.tensor_shape.dim.add(size=size)
        if dtype in fields:
            getattr(tensor, fields[dtype]).extend(values)
    return response


ANSWER = {
    "captions": (7, [1, 1], [b"a cat"]),
    "scores": (1, [1, 1], [-1.0]),
    "valid": (10, [1], [True]),
    "reasons": (7, [1], [b""]),
    "words": (7, [1, 1, 2], [b"a", b"cat"]),
    "lengths": (3, [1, 1], [2]),
}


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"captions": None}, "'captions'"),
        ({"words": None}, "'words'"),
        ({"captions": (7, [1], [b"a cat"])}, ""),
        ({"captions": (1, [1, 1], [1.0])}, ""),
        ({"captions": (2, [1, 1], [])}, "a tensor of type 2"),
        ({"scores": (1, [2**40, 2**40], [0.0])}, "a tensor of shape"),
        ({"scores": (1, [-1, 1], [0.0])}, "a tensor of shape"),
        ({"scores": (1, [1, 1], [0.0] * 3)}, "3 values of shape"),
        ({"valid": (10, [0], [])}, ""),
    ],
)
def test_an_answer_that_no_captioner_gives_is_one_error(client_of, monkeypatch, other, says):
    client = client_of()
    monkeypatch.setattr(client, "predict", lambda _: answered(**ANSWER))
    assert client.caption(jpeg()).words == ("a", "cat")
    outputs = {name: value for name, value in (ANSWER | other).items() if value}
    monkeypatch.setattr(client, "predict", lambda _: answered(**outputs))
    with pytest.raises(ServingError, match=f"does not answer as a captioner .*{says}"):
        client.caption(jpeg())


@pytest.fixture
def photo(tmp_path):
    """A photograph, wider than high."""
    path = tmp_path / "bird.jpg"
    noise(40, 90).save(path)
    return path


@pytest.fixture
def command(caller, capsys):
    """Runs the command against the toy server: exit status, output, errors."""

    def run(*argv) -> tuple[int, list[str], list[str]]:
        status = main([*map(str, argv), "--server", f"localhost:{caller.server.port}"])
        said = capsys.readouterr()
        return status, said.out.splitlines(), said.err.splitlines()

    return run


def test_it_prints_a_caption_for_each_image_and_draws_apart_from_other_figures(
    command, photo, tmp_path
):
    status, out, err = command(photo, photo)
    assert (status, err) == (0, [])
    assert out == [f"{photo}: a cat 3  (-0.50)"] * 2
    status, out, _ = command(photo, photo, "--out", tmp_path / "out")
    assert status == 0 and out[1].endswith(f"{tmp_path / 'out' / 'bird-served-2.png'})")
    assert Image.open(tmp_path / "out" / "bird-served.png").size[0] > 448


def test_scripts_get_a_line_of_json_for_each_image(command, photo, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff-\xc3\xbc.jpg"))
    odd.write_bytes(photo.read_bytes())
    paths = photo, tmp_path / "broken.png", tmp_path / "missing.jpg", odd
    status, out, err = command(*paths, "--json")
    good, broken, missing, named_oddly = map(json.loads, out)
    assert status == 1 and len(err) == 2
    assert good == {
        "image": str(photo),
        "caption": "a cat 3",
        "score": -0.5,
        "version": 3,
        "figure": None,
        "alternatives": [{"caption": "a dog", "score": -1.5}],
        "log_probs": [-0.25] * 3,
    }
    assert broken["image"].endswith("broken.png") and "none of the formats" in broken["error"]
    assert missing["error"] == "No such file or directory"
    assert named_oddly["image"] == str(odd)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--server", "[::1]:1", "--timeout", "3"], "[::1]:1: UNAVAILABLE, "),
        (["--server", "localhost"], "Received an invalid value for argument `server`"),
        (["--ca-file", "missing.pem"], "[Errno 2] No such file or directory: 'missing.pem'"),
    ],
)
def test_errors_are_one_line(photo, capsys, argv, message):
    assert main([str(photo), *argv]) == 2
    *_, err = capsys.readouterr().err.splitlines()
    assert err.startswith(f"Error: {message}")
