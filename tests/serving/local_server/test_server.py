"""The server as callers meet it: health, deadlines, limits, bad requests, a graceful stop."""

from __future__ import annotations

import random
import resource
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2
from tensorflow_serving.apis import predict_pb2

from serving.local_server.servable import Limits
from serving.local_server.server import LocalServer
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


def mutated(rng: random.Random) -> bytes:
    """A request with some of its bytes changed, cut off or put twice."""
    request = predict_request(rng.randbytes(rng.randrange(200)), outputs=("captions",))
    content = bytearray(request.SerializeToString())
    for _ in range(rng.randrange(1, 6)):
        content[rng.randrange(len(content))] = rng.randrange(256)
    if rng.random() < 0.3:
        del content[rng.randrange(len(content)) :]
    if rng.random() < 0.1:
        content *= 2
    return bytes(content)


def invented(rng: random.Random) -> bytes:
    """A well-formed request with values at random."""
    request = predict_pb2.PredictRequest()
    if rng.random() < 0.9:
        request.model_spec.name = rng.choice(["captioner", "captioner", "", "x", "\u2603"])
    if rng.random() < 0.3:
        request.model_spec.version.value = rng.choice([-1, 0, 1, 3, 2**62])
    if rng.random() < 0.3:
        request.model_spec.version_label = rng.choice(["", "stable", "x"])
    if rng.random() < 0.3:
        request.model_spec.signature_name = rng.choice(["serving_default", "x", "__"])
    names = ["captions", "attention", "x", ""]
    request.output_filter.extend(rng.choices(names, k=rng.choice([0, 0, 1, 3])))
    for _ in range(rng.choice([0, 1, 1, 1, 2])):
        tensor = request.inputs[rng.choice(["image_bytes", "image_bytes", "x"])]
        tensor.dtype = rng.choice([7, 7, 7, *range(0, 35), 107, 1000])
        for _ in range(rng.choice([0, 1, 1, 2, 300])):
            tensor.tensor_shape.dim.add(size=rng.choice([-1, 0, 1, 2, 2**31, 2**62]))
        tensor.tensor_shape.unknown_rank = rng.random() < 0.1
        tensor.string_val.extend(rng.randbytes(3) for _ in range(rng.randrange(4)))
        if rng.random() < 0.3:
            tensor.tensor_content = rng.randbytes(rng.randrange(20))
        if rng.random() < 0.2:
            tensor.float_val.extend([1.0, float("nan")])
    return request.SerializeToString()


def send_nonsense(caller, count: int, seed: int) -> dict:
    """Sends bad requests, and now and then a good one; returns how often each status came."""
    rng = random.Random(seed)
    call = caller.channel.unary_unary(PREDICT)  # bytes in, bytes out
    answers: dict = {}
    for number in range(count):
        kind = rng.choice([mutated, invented, lambda r: r.randbytes(r.randrange(300))])
        try:
            call(kind(rng), timeout=120)
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


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_nonsense_is_answered_with_a_status(caller):
    answers = send_nonsense(caller, 400, seed=1)
    assert len(answers) > 3 and grpc.StatusCode.INVALID_ARGUMENT in answers


@pytest.mark.slow
def test_ten_thousand_bad_requests_leave_memory_flat(caller):
    send_nonsense(caller, 1000, seed=2)
    before = resident_bytes()
    send_nonsense(caller, 10_000, seed=3)
    assert resident_bytes() - before < 30 * 2**20
    assert caption_of(caller.predict(predict_request(b"ok"))) == "a cat 3"


def test_the_session_needs_no_default_graph(caller):
    with tf.Graph().as_default():
        assert caller.caption() == "a cat 3"
