"""Captions by a server: requests, answers, words."""

import contextlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from serving.client import CaptionClient, Connection, ServingError, channel
from tests.image_files import encode, exif_of
from tests.serving import toys


@pytest.fixture
def client_of(caller, serving):
    """Makes clients of the toy server, or of a server of a folder, started with `served`."""
    with contextlib.ExitStack() as opened:

        def make(folder: Path | None = None, served: dict | None = None, **options):
            answering = caller
            if folder:
                answering = opened.enter_context(serving(folder, **(served or {})))
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
    assert caption.alpha is None and caption.beta is None
    caption = client_of().caption(jpeg(), attention=True)
    assert caption.words == ("a", "cat", "3")
    assert caption.alpha.shape == (3, toys.GRID, toys.GRID)
    assert [np.argmax(alpha) for alpha in caption.alpha] == [0, 1, 2]
    np.testing.assert_allclose(caption.beta, [0.5, 0.5, 0.5])
    np.testing.assert_allclose(caption.log_probs, [-0.25] * 3)


def test_limits_are_told_where_they_are_known_and_missed_in_a_sentence(client_of, tmp_path):
    toys.export(tmp_path, 1, limits=True)
    knowing, without = client_of(tmp_path), client_of()
    for attention in (False, True):
        found = knowing.captions([jpeg(), b"no"], attention, limits=True)
        assert found[0].familiarity == pytest.approx(0.01)
        assert found[0].confidence == pytest.approx(0.25)
        assert (found[1].familiarity, found[1].confidence) == (None, None)
        with pytest.raises(ServingError, match="does not send familiarity and confidence: its run"):
            without.caption(jpeg(), attention, limits=True)
    # Who does not ask for them gets what there was before.
    assert knowing.caption(jpeg()).familiarity is None
    assert without.caption(jpeg(), attention=True).familiarity is None


def test_an_image_too_large_loses_none_of_its_neighbours(client_of, toy_exports, monkeypatch):
    monkeypatch.setattr("serving.client.captions.BATCH_BYTES", 50_000)
    client = client_of(toy_exports, {"max_bytes": 100_000})
    for large in (0, 1, 4):
        images = [jpeg()] * 5
        images[large] = b"ok" + bytes(200_000)
        answers = list(client.answers(images))
        assert isinstance(answers.pop(large), ServingError)
        assert [answer.text for answer in answers] == ["a cat 3"] * 4
    with pytest.raises(ServingError, match="too large"):
        client.captions(images)


def test_many_images_keep_their_order(client_of):
    images = [jpeg() if number % 3 else b"nonsense" for number in range(20)]
    captions = client_of(batch_size=8).captions(images)
    assert [caption.valid for caption in captions] == [bool(n % 3) for n in range(20)]
    assert captions[0].text == "" and captions[0].alternatives == ()
    assert captions[0].reason == "not what a toy reads" and captions[1].reason == ""


def test_an_answer_may_exceed_grpcs_default(client_of, tmp_path):
    toys.export(tmp_path, 1, grid=400)
    captions = client_of(tmp_path).captions([b"ok"] * 4, attention=True)
    assert sum(caption.alpha.nbytes for caption in captions) > 4 * 2**20
    assert captions[3].words == ("a", "cat", "1")


def test_a_beam_holds_the_attention_of_every_hypothesis(caller_of_soft, exports):
    captioner = exports["soft"].captioner
    with CaptionClient(Connection(port=caller_of_soft.server.port, timeout=120)) as client:
        beam, best = client.beam(jpeg()), client.caption(jpeg(), attention=True)
    assert (beam.attention_kind, beam.resize) == ("soft", captioner.config.encoder.resize)
    assert beam.captions[0].text == best.text
    assert beam.captions[0].language == best.language == captioner.vocabulary.language == "en"
    np.testing.assert_allclose(beam.captions[0].alpha, best.alpha, atol=1e-6)
    assert [(c.text, c.score) for c in beam.captions[1:]] == list(best.alternatives)
    for caption in beam.captions:
        assert len(caption.words) == len(caption.log_probs) == len(caption.alpha) > 0
        np.testing.assert_allclose(caption.alpha.sum(axis=(1, 2)), 1.0, atol=1e-5)


def test_a_beam_is_asked_for_by_a_file_or_by_the_very_bytes_given(client_of, monkeypatch, tmp_path):
    sent, client = [], client_of()
    monkeypatch.setattr(client, "predict", lambda request: sent.append(request) or answered())
    turned = encode(Image.new("RGB", (40, 20)), "JPEG", exif=exif_of(6))
    (tmp_path / "photo.jpg").write_bytes(turned)
    for ask, image in (
        (client.beam, turned),
        (client.beam, tmp_path / "photo.jpg"),
        (client.caption, turned),
    ):
        with pytest.raises(ServingError, match="sends no captions"):
            ask(image)
    contents = [request.inputs["image_bytes"].string_val[0] for request in sent]
    assert contents[0] == turned != contents[2]  # which was turned upright, as a file's was
    assert contents[1] == contents[2]


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
        ({"captions": None}, "sends no captions"),
        ({"words": None}, "sends no words"),
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
    assert client.caption(jpeg(), attention=True).words == ("a", "cat")
    outputs = {name: value for name, value in (ANSWER | other).items() if value}
    monkeypatch.setattr(client, "predict", lambda _: answered(**outputs))
    with pytest.raises(ServingError, match=f"does not answer as a captioner .*{says}"):
        client.caption(jpeg(), attention=True)
