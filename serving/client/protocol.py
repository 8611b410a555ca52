"""TF Serving's Predict call without TensorFlow, whose import takes seconds.

The stubs of tensorflow-serving-api import all of TensorFlow. The few messages of the call are
described here instead, in a descriptor pool apart; they are the same on the wire.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PREDICT = "/tensorflow.serving.PredictionService/Predict"

MOST_BYTES = 512 * 2**20
"""Of an answer."""

DT_FLOAT, DT_STRING = 1, 7
_VALUES = {  # dtype -> NumPy's, the field of the values
    DT_FLOAT: (np.float32, "float_val"),
    3: (np.int32, "int_val"),
    DT_STRING: (object, "string_val"),
    9: (np.int64, "int64_val"),
    10: (np.bool_, "bool_val"),
}

# As `build_messages` reads it.
MESSAGES = {
    "Dim": [(1, "size", "INT64")],
    "TensorShape": [(2, "dim", ["Dim"])],
    "Tensor": [
        (1, "dtype", "INT32"),
        (2, "tensor_shape", "TensorShape"),
        (4, "tensor_content", "BYTES"),
        (5, "float_val", ["FLOAT"]),
        (7, "int_val", ["INT32"]),
        (8, "string_val", ["BYTES"]),
        (10, "int64_val", ["INT64"]),
        (11, "bool_val", ["BOOL"]),
    ],
    "Int64Value": [(1, "value", "INT64")],
    "ModelSpec": [
        (1, "name", "STRING"),
        (2, "version", "Int64Value"),
        (3, "signature_name", "STRING"),
        (4, "version_label", "STRING"),
    ],
    "PredictRequest": [
        (1, "model_spec", "ModelSpec"),
        (2, "inputs", {"STRING": "Tensor"}),
        (3, "output_filter", ["STRING"]),
    ],
    "PredictResponse": [(1, "outputs", {"STRING": "Tensor"}), (2, "model_spec", "ModelSpec")],
}


def build_messages(messages: dict[str, list], package: str = "sat_tf.serving") -> dict[str, type]:
    """Makes message classes from a table.

    Args:
        messages: Fields of each message, `(number, name, type)`: a list for a repeated field, a
            dict for a map from strings. Types in capitals are the protocol's, others are messages
            of the table.
        package: The protocol's package.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3"
    )

    def add_field(message, number: int, name: str, kind: str | list[str]) -> None:
        repeated = isinstance(kind, list)
        (kind,) = kind if repeated else [kind]
        field = message.field.add(name=name, number=number)
        field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
        if kind.isupper():
            field.type = getattr(field, f"TYPE_{kind}")
        else:
            field.type, field.type_name = field.TYPE_MESSAGE, f".{package}.{kind}"

    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, field, kind in fields:
            if isinstance(kind, dict):
                entry = "".join(part.title() for part in field.split("_")) + "Entry"
                (value,) = kind.values()
                nested = message.nested_type.add(name=entry)
                nested.options.map_entry = True
                add_field(nested, 1, "key", "STRING")
                add_field(nested, 2, "value", value)
                kind = [f"{name}.{entry}"]
            add_field(message, number, field, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in messages
    }


_CLASSES = build_messages(MESSAGES)
PredictRequest = _CLASSES["PredictRequest"]
PredictResponse = _CLASSES["PredictResponse"]


def make_request(images: Sequence[bytes], outputs: Sequence[str], model: str) -> PredictRequest:
    """Makes a request for captions of image files."""
    request = PredictRequest(output_filter=outputs)
    request.model_spec.name = model
    tensor = request.inputs["image_bytes"]
    tensor.dtype = DT_STRING
    tensor.tensor_shape.dim.add(size=len(images))
    tensor.string_val.extend(images)
    return request


def to_array(tensor) -> np.ndarray:
    """Reads a tensor of a response.

    Raises:
        ValueError: Its dtype is none of an export's, or its values do not make up its shape.
    """
    if tensor.dtype not in _VALUES:
        raise ValueError(f"a tensor of type {tensor.dtype}")
    dtype, field = _VALUES[tensor.dtype]
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if min(shape, default=0) < 0 or size > MOST_BYTES:  # a single value can stand for any number
        raise ValueError(f"a tensor of shape {shape[:8]}")
    if tensor.tensor_content:
        return np.frombuffer(tensor.tensor_content, dtype).reshape(shape)
    values = np.fromiter(getattr(tensor, field), dtype)
    # The last value stands for all that follow.
    missing = math.prod(shape) - len(values)
    if missing < 0:
        raise ValueError(f"{len(values)} values of shape {shape[:8]}")
    return np.pad(values, (0, missing), "edge" if len(values) else "constant").reshape(shape)
