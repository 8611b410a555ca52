"""Calls that are refused, over real gRPC, in TF Serving's own words."""

import functools

import grpc
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2

from serving import model_server
from tests.serving.toys import predict_request, status_request

INVALID = grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND
UNMET = grpc.StatusCode.FAILED_PRECONDITION
OUTPUTS = "{attention,beta,captions,lengths,reasons,scores,token_ids,valid,word_log_probs,words}"


def refused(call, request) -> tuple[grpc.StatusCode, str]:
    """The status that ends a call."""
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=120)
    return caught.value.code(), caught.value.details()


def with_input(value, alias: str = "image_bytes") -> predict_pb2.PredictRequest:
    """A request with this tensor as its only input."""
    request = predict_request()
    request.inputs.clear()
    request.inputs[alias].CopyFrom(tf.make_tensor_proto(value))
    return request


def unparsable() -> predict_pb2.PredictRequest:
    request = predict_request(b"ok")
    request.inputs["image_bytes"].tensor_shape.dim[0].size = -3
    return request


asked = functools.partial(predict_request, b"")
PREDICT_STATUSES = {  # message -> request and code
    "Missing ModelSpec": (predict_pb2.PredictRequest(), INVALID),
    "Servable not found for request: Latest(x)": (asked(model="x"), NOT_FOUND),
    "Servable not found for request: Specific(captioner, 9)": (asked(version=9), NOT_FOUND),
    "Unrecognized servable version label: x": (asked(label="x"), INVALID),
    'Serving signature key "x" not found.': (asked(signature="x"), UNMET),
    "input tensor alias not found in signature: image. Inputs expected to be in the set "
    "{image_bytes}.": (with_input([b"ok"], alias="image"), INVALID),
    "tensor parsing error: image_bytes": (unparsable(), INVALID),
    "Expects arg[0] to be string but float is provided": (with_input([1.0]), INVALID),
    "Task size 33 is larger than maximum input batch size 32": (
        predict_request(*[b"ok"] * 33),
        INVALID,
    ),
    f"output tensor alias not found in signature: x Outputs expected to be in the set {OUTPUTS}.": (
        asked(outputs=("captions", "x")),
        INVALID,
    ),
}


@pytest.mark.parametrize("message", PREDICT_STATUSES)
def test_predict_is_refused_as_the_real_server_does(caller, message):
    request, code = PREDICT_STATUSES[message]
    assert refused(caller.prediction.Predict, request) == (code, message)


def test_a_wrong_rank_is_the_callers_mistake(caller):
    for value in (b"ok", [[b"ok"]]):
        code, message = refused(caller.prediction.Predict, with_input(value))
        assert code == INVALID and "shape" in message


def test_status_and_metadata_of_another_version_are_not_found(caller):
    metadata = get_model_metadata_pb2.GetModelMetadataRequest()
    metadata.model_spec.CopyFrom(status_request(version=9).model_spec)
    for call, request in (
        (caller.model.GetModelStatus, status_request(version=9)),
        (caller.prediction.GetModelMetadata, metadata),
    ):
        message = "Servable not found for request: Specific(captioner, 9)"
        assert refused(call, request) == (NOT_FOUND, message)


@pytest.mark.parametrize(
    ("dtype", "sizes", "says"),
    [
        (types_pb2.DT_STRING, [2**40], "Task size"),
        (types_pb2.DT_STRING, [0, 2**62], "expected 1 dimensions"),
        (types_pb2.DT_STRING, [-3], "tensor parsing error: image_bytes"),
        (types_pb2.DT_VARIANT, [1], "to be string but variant is provided"),
        (77, [1], "tensor parsing error: image_bytes"),
    ],
)
def test_a_tensor_that_cannot_be_held_is_refused(caller, dtype, sizes, says):
    values = {"string_val": [b"ok"]} if dtype == types_pb2.DT_STRING else {}
    tensor = tensor_pb2.TensorProto(dtype=dtype, **values)
    for size in sizes:
        tensor.tensor_shape.dim.add(size=size)
    request = predict_request()
    request.inputs["image_bytes"].CopyFrom(tensor)
    code, message = refused(caller.prediction.Predict, request)
    assert code == INVALID and says in message


OUT = "Graph execution error:\n\nOOM"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (tf.errors.DeadlineExceededError(None, None, "late"), "DEADLINE_EXCEEDED", "late"),
        (tf.errors.ResourceExhaustedError(None, None, OUT), "RESOURCE_EXHAUSTED", "OOM"),
        (KeyError("x"), "INTERNAL", "KeyError: 'x'"),
    ],
)
def test_an_exception_becomes_a_status(error, code, message):
    status = model_server.status_of(error)
    assert (status.code.name, status.message) == (code, message)


def test_bytes_that_are_no_request_are_told(caller):
    call = caller.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    code, message = refused(call, b"\xff\xff")
    assert code == grpc.StatusCode.INTERNAL and message.startswith("No request: ")
