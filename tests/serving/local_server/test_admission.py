"""Calls run, wait, or are refused, and places come back."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health_pb2
from tensorflow_serving.apis import get_model_status_pb2

from serving.local_server.server import Admission
from serving.local_server.statuses import StatusError
from tests.serving.toys import predict_request
from tests.waiting import eventually


def code_of(admission: Admission, seconds: float | None) -> grpc.StatusCode:
    with pytest.raises(StatusError) as caught, admission.turn(seconds):
        pass
    return caught.value.code


def test_a_call_that_finds_no_turn_in_time_meets_its_deadline():
    admission = Admission(running=1, waiting=1)
    with admission.turn(None) as left:
        assert left is None
        assert code_of(admission, 0.01) == grpc.StatusCode.DEADLINE_EXCEEDED
    with admission.turn(5.0) as left:
        assert 0 < left <= 5


def test_calls_beyond_the_queue_are_refused_and_places_come_back():
    admission = Admission(running=1, waiting=1)

    def wait_in_line() -> None:
        while True:  # ends when the turn below does, at the latest
            with contextlib.suppress(StatusError), admission.turn(None):  # refused: tries again
                return

    def is_full() -> bool:
        return code_of(admission, 0.01) == grpc.StatusCode.RESOURCE_EXHAUSTED

    with ThreadPoolExecutor(1) as pool:
        with admission.turn(None):
            waiter = pool.submit(wait_in_line)
            eventually(is_full)  # the waiter has the one place behind
        waiter.result(timeout=120)
    with admission.turn(120.0):
        pass


def test_a_closed_one_refuses_new_calls_and_waits_for_those_admitted():
    admission = Admission(running=1, waiting=1)
    with ThreadPoolExecutor(1) as pool:
        with admission.turn(None):
            closing = pool.submit(admission.close, 120.0)
            eventually(lambda: code_of(admission, 0.01) == grpc.StatusCode.UNAVAILABLE)
            admission.close(0.2)  # waits no longer than it is told
            assert not closing.done()
        closing.result(timeout=120)
    assert code_of(admission, None) == grpc.StatusCode.UNAVAILABLE


def test_health_and_state_are_answered_while_the_queue_is_full(toy_exports, serving):
    admission = Admission(running=1, waiting=0)
    status = get_model_status_pb2.GetModelStatusRequest()
    status.model_spec.name = "captioner"
    with serving(toy_exports, admission=admission) as caller:
        with admission.turn(None):
            with pytest.raises(grpc.RpcError) as caught:
                caller.predict(predict_request(b"ok"), timeout=120)
            assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            health = caller.health.Check(health_pb2.HealthCheckRequest(), timeout=120)
            assert health.status == health_pb2.HealthCheckResponse.SERVING
            assert caller.model.GetModelStatus(status, timeout=120).model_version_status
        caller.predict(predict_request(b"ok"), timeout=120)
