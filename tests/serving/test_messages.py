"""The messages described by hand are TF Serving's, and need no TensorFlow."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import wrappers_pb2
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2
from tensorflow_serving.apis import model_pb2, predict_pb2

from serving import channel

REAL = {
    "Dim": tensor_shape_pb2.TensorShapeProto.Dim,
    "TensorShape": tensor_shape_pb2.TensorShapeProto,
    "Tensor": tensor_pb2.TensorProto,
    "Int64Value": wrappers_pb2.Int64Value,
    "ModelSpec": model_pb2.ModelSpec,
    "PredictRequest": predict_pb2.PredictRequest,
    "PredictResponse": predict_pb2.PredictResponse,
}
WIRE = {"ENUM": "INT32", "STRING": "BYTES"}  # alike on the wire


def fields_of(message) -> dict[int, tuple]:
    def kind(field):
        names = {v: n for n, v in vars(type(field)).items() if n.startswith("TYPE_")}
        name = names[field.type].removeprefix("TYPE_")
        return WIRE.get(name, name)

    return {
        field.number: (field.name, kind(field), field.is_repeated, field.is_packed)
        for field in message.DESCRIPTOR.fields
    }


@pytest.mark.parametrize("name", channel.MESSAGES)
def test_each_field_is_that_of_the_real_message(name):
    ours = fields_of(channel.build_messages(channel.MESSAGES)[name])
    real = fields_of(REAL[name])
    assert ours == {number: real[number] for number in ours}


@pytest.mark.parametrize(
    "values",
    [
        np.array([[0.5, -1.5]], np.float32),
        np.array([[[1], [2]]], np.int32),
        np.array([True, False]),
        np.array([2**40], np.int64),
        np.array([["a", "\u00fc"], ["", "x y"]]),
        np.zeros([0, 3], np.float32),
        np.full([2, 3], 7, np.float32),
    ],
)
@pytest.mark.parametrize("as_content", [True, False])
def test_tensors_are_read_however_they_were_written(values, as_content):
    proto = tf.make_tensor_proto(values)
    if not as_content and values.dtype.kind != "U":
        dtype = proto.dtype
        proto = tensor_pb2.TensorProto(dtype=dtype, tensor_shape=proto.tensor_shape)
        field = {1: proto.float_val, 3: proto.int_val, 9: proto.int64_val, 10: proto.bool_val}
        field[dtype].extend(values.ravel().tolist())
    response = predict_pb2.PredictResponse(outputs={"x": proto})
    ours = channel.PredictResponse.FromString(response.SerializeToString())
    found = channel.to_array(ours.outputs["x"])
    expected = (
        np.char.encode(values, "utf-8").astype(object) if values.dtype.kind == "U" else values
    )
    assert found.shape == values.shape and found.tolist() == expected.tolist()


def test_client_and_page_load_no_tensorflow():
    code = (
        "import sys, serving.web.app, serving.web.__main__; "
        "from serving.client import CaptionClient; CaptionClient(); "
        "from sat_tf.inference import figures; "
        "sys.exit(bool({'tensorflow', 'keras', 'tensorflow_serving'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
