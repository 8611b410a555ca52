"""An export answers in TensorFlow's C++ session as the captioner does."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from sat_tf.images.decoding import decode, resize
from sat_tf.search import FLOOR
from sat_tf.text.vocabulary import END, PAD
from tests.serving.export_fixtures import BATCHES, warm_up_calls

KINDS = ("soft", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("hard", "none")))
TEXTS = ("captions", "words", "reasons", "language")
FORBIDDEN = ("PyFunc", "XlaLaunch", "XlaCallModule", "Iterator", "Random", ">")


REASONS = {
    "empty": "the bytes are not a JPEG or PNG image; convert others (Pillow: `image.save`)",
    "text": "the bytes are not a JPEG or PNG image; convert others (Pillow: `image.save`)",
    "cut": "the file is damaged",
    "flipped": "the file is damaged",
    "huge": "the image has no pixels, or more than 32768 per side or 67108864 in all",
    "webp": "the bytes are not a JPEG or PNG image; convert others (Pillow: `image.save`)",
}


def reference(captioner, contents: list[bytes]) -> dict[str, np.ndarray]:
    """The same outputs by `TrainedCaptioner`."""
    encoder = captioner.config.encoder
    # As a graph reads them, which cannot turn a photograph by its EXIF.
    size = encoder.image_size, encoder.resize
    pixels = tf.stack([resize(decode(content), *size) for content in contents])
    found = tf.nest.map_structure(np.asarray, captioner.search(captioner.annotate(pixels)))
    outputs = {
        "captions": [
            [captioner.vocabulary.decode(ids) for ids in beam] for beam in found.token_ids
        ],
        "words": [[words_of(ids, captioner) for ids in beam] for beam in found.token_ids],
        "scores": found.scores,
        "token_ids": found.token_ids,
        "lengths": found.lengths,
        "word_log_probs": found.word_log_probs,
        "valid": np.ones(len(contents), bool),
        "reasons": [""] * len(contents),
        "language": [captioner.vocabulary.language] * len(contents),
    }
    if captioner.config.attention.kind != "none":
        alpha, beta = found.auxiliary
        outputs |= {"attention": alpha.reshape(*alpha.shape[:3], *captioner.grid), "beta": beta}
    return outputs


def words_of(ids: np.ndarray, captioner) -> list[str]:
    """The words of a caption, padded with empty ones."""
    return [captioner.vocabulary.words[i] if i not in (PAD, END) else "" for i in ids]


def assert_same(found: dict, expected: dict, every_beam: bool = False) -> None:
    assert set(found) == set(expected)
    for name, value in found.items():
        if name in TEXTS:
            assert value == expected[name]
            continue
        wanted = np.asarray(expected[name])
        if name in ("word_log_probs", "attention", "beta") and not every_beam:
            wanted = wanted[:, 0]
        np.testing.assert_allclose(value, wanted, atol=1e-4, err_msg=name)


def rows(answer: dict, chosen) -> dict:
    return {name: [value[row] for row in chosen] for name, value in answer.items()}


def assert_rows_agree(found: dict, expected: dict) -> None:
    assert {name: found[name] for name in TEXTS} == {name: expected[name] for name in TEXTS}
    for name in set(expected) - set(TEXTS):
        np.testing.assert_allclose(found[name], expected[name], atol=1e-4, err_msg=name)


@pytest.mark.parametrize("size", BATCHES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_signature_answers_as_the_captioner_does(exports, answers, images, kind, size):
    expected = reference(exports[kind].captioner, images.files[:size])
    assert_same(answers(kind, f"serving_default_{size}"), expected)
    assert_same(answers(kind, f"pixels_{size}"), expected)
    every_beam = dict(answers(kind, f"every_beam_{size}"))
    config = exports[kind].captioner.config
    assert every_beam.pop("attention_kind") == [config.attention.kind] * size
    assert every_beam.pop("resize") == [config.encoder.resize] * size
    assert_same(every_beam, expected, every_beam=True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_holds_stock_operations_only(exports, kind):
    (meta_graph,) = saved_model(exports[kind].version).meta_graphs
    graph = meta_graph.graph_def
    functions = {function.signature.name for function in graph.library.function}
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    found = {node.op for node in nodes} - functions
    assert "DecodeJpeg" in found  # those of functions are listed too
    assert [op for op in found if any(part in op for part in FORBIDDEN)] == []
    assert [op for op in found if not hasattr(tf.raw_ops, op)] == []
    assert b"_XlaMustCompile" not in (exports[kind].version / "saved_model.pb").read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_is_answered_the_same_whatever_its_neighbours(answers, images, kind):
    good = answers(kind, "serving_default_7")
    assert_rows_agree(rows(answers(kind, "serving_default_1"), [0]), rows(good, [0]))
    mixed, count = answers(kind, "mixed"), len(images.bad)
    assert_rows_agree(rows(mixed, range(0, 2 * count, 2)), rows(good, range(count)))


@pytest.mark.parametrize("call", ["mixed", "all_bad"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_image_is_not_valid_and_has_no_caption(answers, kind, call):
    answer = answers(kind, call)
    bad = [row for row, valid in enumerate(answer["valid"]) if not valid]
    assert bad == list(range(1, 12, 2) if call == "mixed" else range(6))
    answer = rows(answer, bad)
    assert answer.pop("reasons") == list(REASONS.values())
    assert set(answer.pop("language")) == {"en"}
    assert set(np.ravel(answer.pop("captions"))) == {""} == set(np.ravel(answer.pop("words")))
    assert set(np.ravel(answer.pop("scores"))) == {FLOOR}
    assert all(not np.any(value) for value in answer.values())


def test_every_format_is_read(exports, answers, images):
    expected = reference(exports["soft"].captioner, list(images.good.values()))
    assert_same(answers("soft", "formats"), expected)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("no_images", "empty batch as `image_bytes`: expected at least one image"),
        ("no_pixels", "empty batch as `pixels`"),
        ("no_height", "an image in `pixels` has no pixels"),
        ("long_strip", "an image in `pixels` has no pixels, or more than 32768 per side"),
    ],
)
def test_a_batch_that_cannot_be_is_a_readable_error(answers, call, says):
    with pytest.raises(tf.errors.InvalidArgumentError, match=says):
        answers("soft", call)


@pytest.mark.parametrize("kind", KINDS)
def test_every_output_leads_with_the_batch_and_is_else_of_known_shape(exports, kind):
    for signature in saved_signatures(exports[kind].version).values():
        for info in signature.outputs.values():
            batch, *others = [axis.size for axis in info.tensor_shape.dim]
            assert batch == -1 and all(size > 0 for size in others)
        # TF Serving writes outputs of such names as base64.
        assert not [name for name in signature.outputs if name.endswith("_bytes")]


def saved_model(version) -> saved_model_pb2.SavedModel:
    return saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes())


def saved_signatures(version):
    (meta_graph,) = saved_model(version).meta_graphs
    assert list(meta_graph.meta_info_def.tags) == ["serve"]
    found = dict(meta_graph.signature_def.items())
    found.pop("__saved_model_init_op")
    assert all(s.method_name == "tensorflow/serving/predict" for s in found.values())
    return found


# The requests by which TF Serving warms up.


@pytest.mark.parametrize("kind", KINDS)
def test_each_set_of_outputs_has_its_own_warm_up_answered_with_a_caption(exports, kind):
    calls = warm_up_calls(exports[kind].version)
    for signature, value, outputs in calls:
        answer = exports[kind].call(signature, value, outputs or None)
        assert set(answer) == set(outputs) or not outputs
        assert answer["valid"].tolist() == [True] and answer["captions"][0][0]
    asked = {(signature, outputs) for signature, _, outputs in calls}
    assert {signature for signature, _ in asked} == {"serving_default", "pixels", "every_beam"}
    assert len(asked) == len(calls) > 3 and ("serving_default", ()) in asked
