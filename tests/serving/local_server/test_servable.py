"""One loaded version: its warm-up, tensors that claim to be huge, its own memory."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import predict_pb2

from serving.local_server.servable import Servable, StatusError
from tests.serving.toys import predict_request, write_warm_up


@pytest.fixture(scope="module")
def servable(toy_exports):
    return Servable(toy_exports / "1", max_bytes=10_000)


def predict_tensor(servable, tensor: tensor_pb2.TensorProto):
    request = predict_request()
    request.inputs["image_bytes"].CopyFrom(tensor)
    return servable.predict(request)


def strings(*values: bytes, count: int) -> tensor_pb2.TensorProto:
    tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=values)
    tensor.tensor_shape.dim.add(size=count)
    return tensor


def test_warm_up_is_replayed(place, monkeypatch):
    folder = place(1)
    write_warm_up(folder / "1", predict_request(b"ok"), predict_request(b"", outputs=("valid",)))
    replayed = []
    real = Servable.predict
    monkeypatch.setattr(
        Servable, "predict", lambda self, request: replayed.append(real(self, request))
    )
    Servable(folder / "1")
    assert len(replayed) == 2 and set(replayed[1].outputs) == {"valid"}


def test_a_failing_warm_up_fails_the_load(place):
    folder = place(1)
    write_warm_up(folder / "1", predict_request(b"explode"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="assertion failed"):
        Servable(folder / "1")


def shaped(dtype: int, *sizes: int) -> tensor_pb2.TensorProto:
    """A tensor of one value, repeated."""
    values = {"string_val": [b"ok"]} if dtype == types_pb2.DT_STRING else {"float_val": [1.0]}
    tensor = tensor_pb2.TensorProto(dtype=dtype, **values)
    for size in sizes:
        tensor.tensor_shape.dim.add(size=size)
    return tensor


@pytest.mark.parametrize(
    ("dimensions", "said"),
    [
        *((n, f"at most 32 dimensions but {n} are provided") for n in (33, 64, 254)),
        *((n, r"shape \(.*\) for Tensor .*\(None,\)") for n in (0, 2, 32)),
    ],
)
def test_strings_of_another_rank_are_refused(servable, dimensions, said):
    with pytest.raises(StatusError, match=said):
        predict_tensor(servable, shaped(types_pb2.DT_STRING, *[1] * dimensions))


@pytest.mark.parametrize(
    "tensor",
    [
        strings(b"", count=2**40),
        strings(b"x" * 4000, count=4),
        strings(count=2**62),
        tensor_pb2.TensorProto(dtype=types_pb2.DT_VARIANT),
        tensor_pb2.TensorProto(dtype=types_pb2.DT_RESOURCE),
        tensor_pb2.TensorProto(),
        tensor_pb2.TensorProto(dtype=77),
    ],
)
def test_a_tensor_that_cannot_be_held_is_no_tensor(servable, tensor):
    with pytest.raises(StatusError, match="tensor parsing error: image_bytes"):
        predict_tensor(servable, tensor)


def numbers(count: int) -> predict_pb2.PredictRequest:
    """A request whose single number stands for `count` small images."""
    request = predict_pb2.PredictRequest()
    request.model_spec.signature_name = "brightness"
    request.inputs["pixels"].CopyFrom(tf.make_tensor_proto(np.full([1, 2, 2], 7, np.float32)))
    request.inputs["pixels"].ClearField("tensor_content")
    request.inputs["pixels"].float_val.append(7.0)
    request.inputs["pixels"].tensor_shape.dim[0].size = count
    return request


def test_numbers_that_claim_to_be_many_are_no_tensor(servable):
    response = servable.predict(numbers(3))
    assert tf.make_ndarray(response.outputs["brightness"]).tolist() == [7.0] * 3
    with pytest.raises(StatusError, match="tensor parsing error: pixels"):
        servable.predict(numbers(10**9))
