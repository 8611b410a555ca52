"""Requests are joined, split, padded and failed as by TF Serving's batching."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import tensorflow as tf

from serving.local_server.batching import Batcher
from serving.local_server.batching_parameters import BatchingParameters
from serving.local_server.server import Admission
from serving.local_server.statuses import StatusError
from tests.serving.toys import caption_of, predict_request
from tests.waiting import eventually

MINUTE = 60_000_000  # a batch waits for its last request: it only ends by being full


class Doubler:
    """Doubles its input, and keeps what it was fed."""

    def __init__(self) -> None:
        self.fed: list[np.ndarray] = []

    def __call__(self, fetches, feeds, seconds):
        self.fed.append(feeds["x"])
        return [np.array([value * 2 for value in feeds["x"]], feeds["x"].dtype)]


def call_all(batcher: Batcher, *feeds: dict, fetches: tuple[str, ...] = ("y",)) -> list:
    """Calls at the same time; returns the first output of each, or its status."""

    def call(feed: dict):
        try:
            return batcher.run(fetches, feed, None)[0]
        except StatusError as error:
            return error.code.name

    with ThreadPoolExecutor(len(feeds)) as pool:
        return list(pool.map(call, feeds))


def values(*numbers: float, shape: tuple[int, ...] = (-1,)) -> dict[str, np.ndarray]:
    return {"x": np.array(numbers, np.float32).reshape(shape)}


def full_at(rows: int, **parameters) -> BatchingParameters:
    return BatchingParameters(rows, MINUTE, **parameters)


def test_requests_run_once_and_each_gets_its_own_rows():
    run = Doubler()
    one, two, three = call_all(Batcher(full_at(6), run), values(1), values(2, 3), values(4, 5, 6))
    assert [one.tolist(), two.tolist(), three.tolist()] == [[2], [4, 6], [8, 10, 12]]
    assert len(run.fed) == 1


def test_a_request_that_does_not_fit_closes_the_batch():
    batcher = Batcher(full_at(3), Doubler())
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(batcher.run, ["y"], values(1, 2), None)

        def closes_it() -> bool:  # once the first is in the queue
            assert batcher.run(["y"], values(3, 4, 5), None)[0].tolist() == [6, 8, 10]
            return first.done()

        eventually(closes_it)
    assert first.result()[0].tolist() == [2, 4]


def test_other_outputs_are_another_batch():
    batcher = Batcher(BatchingParameters(max_batch_size=9), Doubler())
    assert batcher.run(["y"], values(1), None)[0].tolist() == [2]
    assert batcher.run(["z"], values(2), 5.0)[0].tolist() == [4]


def test_requests_of_other_shapes_fail_together():
    run = Doubler()
    answers = call_all(Batcher(full_at(2), run), values(1), values(2, shape=(1, 1)))
    assert answers == ["FAILED_PRECONDITION"] * 2 and not run.fed


def test_padding_fills_up_with_the_first_value():
    run = Doubler()
    batcher = Batcher(full_at(2, pad_variable_length_inputs=True), run)
    small, large = call_all(batcher, values(7, shape=(1, 1, 1)), values(1, 2, shape=(1, 1, 2)))
    assert small.tolist() == [[[14, 14]]] and large.tolist() == [[[2, 4]]]
    assert call_all(batcher, values(1), values(2, shape=(1, 1))) == ["INTERNAL"] * 2


def test_a_batch_is_filled_up_to_an_allowed_size_and_the_rows_added_are_dropped():
    run = Doubler()
    batcher = Batcher(BatchingParameters(4, allowed_batch_sizes=(2, 4)), run)
    assert batcher.run(["y"], values(5, 6, 7), None)[0].tolist() == [10, 12, 14]
    assert run.fed[0].tolist() == [5, 6, 7, 5]
    with pytest.raises(StatusError, match="TF Serving aborts here"):
        batcher.run(["y"], values(), None)


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "at least one input tensor"),
        ({"x": np.float32(1)}, "at least one dimension"),
        ({"x": np.zeros(2), "y": np.zeros(3)}, "equal 0th-dimension size"),
        ({"x": np.zeros(5)}, "Task size 5 is larger than maximum input batch size 4"),
    ],
)
def test_a_request_that_cannot_be_batched_is_invalid(feeds, message):
    batcher = Batcher(BatchingParameters(4), Doubler())
    with pytest.raises(StatusError, match=message) as caught:
        batcher.run(["y"], feeds, None)
    assert caught.value.code == grpc.StatusCode.INVALID_ARGUMENT


def test_outputs_without_the_batch_cannot_be_split():
    batcher = Batcher(BatchingParameters(4), lambda *_: [np.zeros(3)])
    with pytest.raises(StatusError, match="does not equal the sum of the 0th dimension sizes"):
        batcher.run(["y"], values(1), None)
    batcher = Batcher(BatchingParameters(4), lambda *_: [np.float32(3)])
    with pytest.raises(StatusError, match="has 0 dimensions"):
        batcher.run(["y"], values(1), None)


def test_batches_beyond_the_queue_are_unavailable():
    batcher = Batcher(full_at(2, max_enqueued_batches=1), Doubler())
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(batcher.run, ["y"], values(1), None)
        eventually(lambda: call_all(batcher, values(2, 3)) == ["UNAVAILABLE"])  # first is queued
        assert batcher.run(["y"], values(4), None)[0].tolist() == [8]
        assert first.result(timeout=120)[0].tolist() == [2]


def test_a_call_whose_time_is_over_is_not_run():
    run = Doubler()
    with pytest.raises(StatusError, match="timeout exceeded while waiting in batching queue"):
        Batcher(BatchingParameters(4), run).run(["y"], values(1), 0.0)
    assert not run.fed


def code_of(call) -> str:
    return call.exception(timeout=120).code().name


def test_one_stray_request_fails_its_neighbour_over_the_wire(toy_exports, serving):
    stray = predict_request(b"ok")
    stray.inputs["image_bytes"].CopyFrom(tf.make_tensor_proto([[b"ok"]]))
    with serving(toy_exports, batching=full_at(2)) as caller:
        predict = caller.prediction.Predict
        calls = [
            predict.future(request, timeout=120) for request in (predict_request(b"ok"), stray)
        ]
        assert [code_of(call) for call in calls] == ["FAILED_PRECONDITION"] * 2
        # An error of the graph is everyone's too.
        requests = [predict_request(b"ok"), predict_request(b"explode")]
        calls = [predict.future(request, timeout=120) for request in requests]
        assert [code_of(call) for call in calls] == ["INVALID_ARGUMENT"] * 2
        calls = [predict.future(predict_request(b"ok"), timeout=120) for _ in range(2)]
        assert [caption_of(call.result()) for call in calls] == ["a cat 3"] * 2


def test_joined_requests_wait_for_one_another_and_not_for_their_turns(toy_exports, serving):
    batching = BatchingParameters(3, 10 * MINUTE)
    with serving(toy_exports, batching=batching, admission=Admission(1, 2)) as caller:
        predict = caller.prediction.Predict
        by_default = predict_request(b"ok")
        with caller.server.versions.use(by_default.model_spec) as (_, servable):
            outputs = tuple(servable.signatures["serving_default"].outputs)
        by_name = predict_request(b"ok", outputs=outputs)
        requests = (by_default, by_name, by_name)
        calls = [predict.future(request, timeout=120) for request in requests]
        assert [caption_of(call.result()) for call in calls] == ["a cat 3"] * 3


def test_a_request_for_some_outputs_runs_alone(toy_exports, serving):
    with serving(toy_exports, batching=full_at(2)) as caller:
        # It would wait for a second one.
        assert caller.predict(predict_request(b"ok", outputs=("captions",)), timeout=120).outputs
