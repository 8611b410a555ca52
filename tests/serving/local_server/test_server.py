"""The server as callers meet it: answers, health, deadlines, limits, a graceful stop."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import get_model_status_pb2

from serving.local_server.servable import Servable
from serving.local_server.server import LocalServer
from tests.serving.processes import resident_megabytes
from tests.serving.toys import GRID, T, predict_request, status_request
from tests.waiting import eventually

AVAILABLE = get_model_status_pb2.ModelVersionStatus.AVAILABLE
OUTPUTS = {"attention", "beta", "captions", "lengths", "reasons", "scores", "token_ids", "valid"}
OUTPUTS |= {"word_log_probs", "words"}
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
    assert set(values) == OUTPUTS
    assert values["captions"].tolist() == [[b"a cat 3", b"a dog"], [b"", b""]]
    assert values["valid"].dtype == bool and values["valid"].tolist() == [True, False]
    assert values["lengths"].dtype == np.int32 and values["lengths"].tolist() == [[3, 2], [0, 0]]
    assert values["attention"].shape == (2, T, GRID, GRID)
    np.testing.assert_allclose(values["beta"], [[0.5, 0.5, 0.5, 0.0], [0.0] * 4])
    np.testing.assert_allclose(values["scores"], [[-0.5, -1.5]] * 2)


@pytest.mark.parametrize("spec", [{}, {"version": 3}])
def test_the_answer_says_what_answered(caller, spec):
    response = caller.predict(predict_request(b"ok", **spec))
    assert response.model_spec.name == "captioner"
    assert response.model_spec.version.value == 3
    assert response.model_spec.signature_name == "serving_default"


def test_status_lists_the_versions(caller):
    response = caller.model.GetModelStatus(status_request(), timeout=120)
    assert [s.version for s in response.model_version_status] == [3]
    assert {s.state for s in response.model_version_status} == {AVAILABLE}
    assert all(s.HasField("status") for s in response.model_version_status)


def test_it_is_healthy(caller):
    assert caller.healthy() and caller.healthy("tensorflow.serving.PredictionService")


def test_a_deadline_ends_the_call(caller):
    with pytest.raises(grpc.RpcError) as caught:
        caller.caption(b"stuck", timeout=0.3)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert caller.caption() == "a cat 3"


def test_calls_run_at_the_same_time(caller, monkeypatch):
    # Held before TensorFlow, whose threads, of which there may be one, are not in question.
    predict, came, go = Servable.predict, threading.Event(), threading.Event()

    def hold(servable, request, *seconds):
        if b"ok, later" in request.SerializeToString():
            came.set()
            assert go.wait(120.0)
        return predict(servable, request, *seconds)

    monkeypatch.setattr(Servable, "predict", hold)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(caller.caption, b"ok, later")
        try:
            assert came.wait(120.0)
            assert caller.caption() == "a cat 3" and not slow.done()
        finally:
            go.set()
        assert slow.result() == "a cat 3"


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


def test_a_call_that_is_cancelled_while_it_waits_is_never_computed(
    toy_exports, serving, monkeypatch
):
    came, go, computed = threading.Event(), threading.Event(), []

    def hold(*arguments):
        computed.append(arguments)
        came.set()
        go.wait(120.0)

    monkeypatch.setattr(Servable, "predict", hold)
    with serving(toy_exports, running=1) as caller:
        first, *calls = (caller.prediction.Predict.future(predict_request(b"ok")) for _ in range(8))
        assert came.wait(120.0)
        for call in (*calls, first):
            call.cancel()
        assert caller.healthy()  # asked after them
        go.set()
    assert len(computed) == 1


def test_too_many_at_once_are_refused_and_those_that_wait_are_answered(toy_exports, serving, held):
    with serving(toy_exports, running=1, waiting=1) as caller, ThreadPoolExecutor(2) as pool:
        slow = pool.submit(caller.caption, held.image)
        held.wait_until_in_flight()
        calls = [caller.prediction.Predict.future(predict_request(b"ok")) for _ in range(3)]
        codes = set()

        def refused() -> bool:
            codes.update(call.code() for call in calls if call.done())
            return sum(call.done() for call in calls) == 2

        eventually(refused)
        assert codes == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert caller.healthy()  # answered at once, whatever waits
        held.release()
        assert slow.result() == "a cat 3"
        assert sorted(call.code().name for call in calls) == ["OK", *["RESOURCE_EXHAUSTED"] * 2]


def test_a_taken_port_is_an_error(toy_exports, caller):
    with pytest.raises(OSError, match="Cannot listen on 127.0.0.1:.*another server"):
        LocalServer(toy_exports, port=caller.server.port)


def test_a_folder_from_which_nothing_loads_is_an_error_with_the_reason(tmp_path, place):
    with pytest.raises(ValueError, match="expected a folder that holds version folders"):
        LocalServer(tmp_path, port=0)
    folder = place(1)
    (folder / "1" / "saved_model.pb").write_bytes(b"no graph")
    with pytest.raises(ValueError, match="No version in .* can be served. Version 1: "):
        LocalServer(folder, port=0)


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


def send_nonsense(caller, count: int, seed: int) -> dict:
    """Sends bad requests, and now and then a good one; returns how often each status came."""
    rng = random.Random(seed)
    call = caller.channel.unary_unary(PREDICT)  # bytes in, bytes out
    answers: dict = {}
    for number in range(count):
        good = predict_request(rng.randbytes(rng.randrange(200)), outputs=("captions",))
        request = spoil(good.SerializeToString(), rng)
        try:
            call(request, timeout=120)
            status = grpc.StatusCode.OK
        except grpc.RpcError as error:
            status = error.code()
            assert status in TOLD or "No request" in error.details(), error.details()
        answers[status] = answers.get(status, 0) + 1
        if number % 25 == 0:
            assert caller.caption() == "a cat 3"
    return answers


def test_nonsense_is_answered_with_a_status(caller):
    answers = send_nonsense(caller, 400, seed=1)
    assert len(answers) > 3 and grpc.StatusCode.INVALID_ARGUMENT in answers


@pytest.mark.slow
def test_thousands_of_bad_requests_leave_memory_flat(caller):
    send_nonsense(caller, 1000, seed=2)
    before = resident_megabytes("self")
    send_nonsense(caller, 4_000, seed=3)
    assert resident_megabytes("self") - before < 15
