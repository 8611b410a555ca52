"""The server as callers meet it: health, deadlines, limits, bad requests, a graceful stop."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2

from benchmarks.peak import resident_megabytes
from serving.local_server.servable import Limits
from serving.local_server.server import LocalServer
from tests.serving.local_server.odd_requests import mutate, odd_request
from tests.serving.toys import caption_of, predict_request
from tests.waiting import eventually

HEALTH = health_pb2.HealthCheckResponse
PREDICT = "/tensorflow.serving.PredictionService/Predict"
TOLD = {  # a broken request is the caller's fault, never the server's
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
}


@pytest.mark.parametrize(
    "service",
    ["", "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"],
)
def test_it_is_healthy(caller, service):
    response = caller.health.Check(health_pb2.HealthCheckRequest(service=service), timeout=120)
    assert response.status == HEALTH.SERVING


def test_the_health_of_something_else_is_unknown(caller):
    with pytest.raises(grpc.RpcError) as caught:
        caller.health.Check(health_pb2.HealthCheckRequest(service="x"), timeout=120)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_a_deadline_ends_the_call(caller):
    with pytest.raises(grpc.RpcError) as caught:
        caller.caption(b"stuck", timeout=0.3)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert caller.caption() == "a cat 3"


def test_calls_run_at_the_same_time(caller, held):
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(caller.caption, held.image)
        held.wait_until_in_flight()
        assert caller.caption() == "a cat 3" and not slow.done()
        held.release()
        assert slow.result() == "a cat 3"


def test_a_request_past_the_limit_is_refused(toy_exports, serving):
    with serving(toy_exports, limits=Limits(bytes=100_000)) as caller:
        with pytest.raises(grpc.RpcError) as caught:
            caller.caption(b"ok" + bytes(200_000))
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert caller.caption(b"ok" + bytes(50_000)) == "a cat 3"


def refuses(caller) -> bool:
    try:
        caller.caption()
    except grpc.RpcError as error:
        return error.code() == grpc.StatusCode.UNAVAILABLE
    return False


def test_a_stop_finishes_what_is_in_flight(toy_exports, serving, held):
    with serving(toy_exports) as caller, ThreadPoolExecutor(2) as pool:
        slow = pool.submit(caller.caption, held.image)
        held.wait_until_in_flight()
        stopped = pool.submit(caller.server.stop, 600.0)
        eventually(lambda: refuses(caller))
        health = caller.health.Check(health_pb2.HealthCheckRequest(), timeout=120)
        assert health.status == HEALTH.NOT_SERVING
        held.release()
        assert slow.result() == "a cat 3"
        stopped.result()


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


def test_a_taken_port_is_an_error(toy_exports, caller):
    with pytest.raises(OSError, match="Cannot listen on 127.0.0.1:.*another server"):
        LocalServer(toy_exports, port=caller.server.port)


def test_a_folder_without_versions_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="expected a folder that holds version folders"):
        LocalServer(tmp_path, port=0)


def test_a_folder_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        LocalServer(tmp_path / "missing", port=0)


def test_when_nothing_loads_the_reason_is_told(place):
    folder = place(1)
    (folder / "1" / "saved_model.pb").write_bytes(b"no graph")
    with pytest.raises(ValueError, match="No version in .* can be served. Version 1: "):
        LocalServer(folder, port=0)


def nonsense(rng: random.Random) -> bytes:
    """A request that is odd, spoilt, or none at all."""
    good = predict_request(rng.randbytes(rng.randrange(200)), outputs=("captions",))
    spoilt = mutate(good.SerializeToString(), rng)
    return rng.choice([odd_request(rng), spoilt, rng.randbytes(rng.randrange(300))])


def send_nonsense(caller, count: int, seed: int) -> dict:
    """Sends bad requests, and now and then a good one; returns how often each status came."""
    rng = random.Random(seed)
    call = caller.channel.unary_unary(PREDICT)  # bytes in, bytes out
    answers: dict = {}
    for number in range(count):
        try:
            call(nonsense(rng), timeout=120)
            status = grpc.StatusCode.OK
        except grpc.RpcError as error:
            status = error.code()
            details = error.details()
        answers[status] = answers.get(status, 0) + 1
        if status not in {*TOLD, grpc.StatusCode.OK}:
            assert status == grpc.StatusCode.INTERNAL, (status, details)
            assert "No request" in details or "method_name" in details, details
        if number % 25 == 0:
            assert caller.caption() == "a cat 3"
    return answers


def test_nonsense_is_answered_with_a_status(caller):
    answers = send_nonsense(caller, 400, seed=1)
    assert len(answers) > 3 and grpc.StatusCode.INVALID_ARGUMENT in answers


@pytest.mark.slow
def test_ten_thousand_bad_requests_leave_memory_flat(caller):
    send_nonsense(caller, 1000, seed=2)
    before = resident_megabytes("self")
    send_nonsense(caller, 10_000, seed=3)
    assert resident_megabytes("self") - before < 30
    assert caption_of(caller.predict(predict_request(b"ok"))) == "a cat 3"


def test_the_session_needs_no_default_graph(caller):
    with tf.Graph().as_default():
        assert caller.caption() == "a cat 3"
