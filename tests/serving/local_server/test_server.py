"""The server as callers meet it: answers, metadata, health, deadlines, a graceful stop."""

import random
import shutil
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

from serving.local_server import newest_version
from serving.model_server import Servable
from tests.serving.toys import GRID, T, predict_request, status_request, write_warm_up

AVAILABLE = get_model_status_pb2.ModelVersionStatus.AVAILABLE
PREDICT = "/tensorflow.serving.PredictionService/Predict"
TOLD = {  # a broken request is the caller's fault, never the server's
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
}


def test_every_output_comes_by_default(caller):
    response = caller.predict(predict_request(b"ok", b"nonsense"))
    values = {name: tf.make_ndarray(proto) for name, proto in response.outputs.items()}
    assert values["captions"].tolist() == [[b"a cat 3", b"a dog"], [b"", b""]]
    assert values["valid"].dtype == bool and values["valid"].tolist() == [True, False]
    assert values["lengths"].dtype == np.int32 and values["lengths"].tolist() == [[3, 2], [0, 0]]
    assert values["attention"].shape == (2, T, GRID, GRID)
    np.testing.assert_allclose(values["beta"], [[0.5, 0.5, 0.5, 0.0], [0.0] * 4])


@pytest.mark.parametrize("spec", [{}, {"version": 3}])
def test_the_answer_says_what_answered(caller, spec):
    response = caller.predict(predict_request(b"ok", **spec))
    assert response.model_spec.name == "captioner"
    assert response.model_spec.version.value == 3
    assert response.model_spec.signature_name == "serving_default"


def test_the_status_is_that_of_the_one_version_and_it_is_healthy(caller):
    (found,) = caller.model.GetModelStatus(status_request(), timeout=120).model_version_status
    assert (found.version, found.state) == (3, AVAILABLE) and found.HasField("status")
    assert caller.healthy() and caller.healthy("tensorflow.serving.PredictionService")


def test_the_metadata_has_the_signatures(caller):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "captioner"
    response = caller.prediction.GetModelMetadata(request, timeout=120)
    found = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(found)
    signature = found.signature_def["serving_default"]
    assert list(signature.inputs) == ["image_bytes"] and "captions" in signature.outputs
    assert response.model_spec.version.value == 3


def test_a_deadline_ends_the_call(caller):
    with pytest.raises(grpc.RpcError) as caught:
        caller.caption(b"stuck", timeout=0.3)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert caller.caption() == "a cat 3"


def test_a_stop_waits_no_longer_than_it_is_told(toy_exports, serving, held):
    with serving(toy_exports) as caller, ThreadPoolExecutor(2) as pool:
        slow = pool.submit(caller.caption, held.image)
        held.wait_until_in_flight()
        stopped = pool.submit(caller.server.stop, 0.1)
        with pytest.raises(grpc.RpcError) as caught:
            slow.result()
        assert caught.value.code() in {grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE}
        held.release()
        stopped.result()


def test_the_newest_version_is_served_and_a_folder_without_one_is_an_error(toy_exports, tmp_path):
    assert newest_version(toy_exports) == (3, toy_exports / "3")
    (tmp_path / "export").mkdir()
    with pytest.raises(ValueError, match="holds version folders.*Did you mean .*/export"):
        newest_version(tmp_path)


def test_warm_up_is_replayed_and_fails_the_load_if_it_fails(tmp_path, toy_exports, monkeypatch):
    good, bad = (shutil.copytree(toy_exports / "1", tmp_path / name) for name in "12")
    write_warm_up(good, predict_request(b"ok"), predict_request(b"", outputs=("valid",)))
    write_warm_up(bad, predict_request(b"explode"))
    replayed, real = [], Servable.predict
    monkeypatch.setattr(
        Servable, "predict", lambda self, request: replayed.append(real(self, request))
    )
    Servable(good)
    assert len(replayed) == 2 and set(replayed[1].outputs) == {"valid"}
    with pytest.raises(tf.errors.InvalidArgumentError, match="assertion failed"):
        Servable(bad)


def spoil(content: bytes, rng: random.Random) -> bytes:
    """Changes some bytes, cuts the end off or repeats a part."""
    changed = bytearray(content)
    for _ in range(rng.randrange(1, 8)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    if rng.random() < 0.3:
        del changed[rng.randrange(len(changed)) :]
    if rng.random() < 0.2:
        start = rng.randrange(len(changed) + 1)
        changed[start:start] = changed[start : start + rng.randrange(1000)] * rng.randrange(1, 20)
    return bytes(changed)


def test_nonsense_is_answered_with_a_status(caller):
    rng, answers = random.Random(1), set()
    call = caller.channel.unary_unary(PREDICT)  # bytes in, bytes out
    for number in range(400):
        good = predict_request(rng.randbytes(rng.randrange(200)), outputs=("captions",))
        try:
            call(spoil(good.SerializeToString(), rng), timeout=120)
            answers.add(grpc.StatusCode.OK)
        except grpc.RpcError as error:
            answers.add(error.code())
            assert error.code() in TOLD or "No request" in error.details(), error.details()
        if number % 50 == 0:
            assert caller.caption() == "a cat 3"
    assert len(answers) > 3 and grpc.StatusCode.INVALID_ARGUMENT in answers
