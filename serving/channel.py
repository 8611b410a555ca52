"""TF Serving's Predict without TensorFlow: messages, connections, errors in plain words.

The stubs of tensorflow-serving-api import TensorFlow, which takes seconds, so the few messages of
Predict are described here; they are the same on the wire.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from sat_tf.util.commands import printable
from sat_tf.util.errors import invalid_value

PREDICT = "/tensorflow.serving.PredictionService/Predict"
MOST_BYTES = 512 * 2**20
"""Of an answer."""

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

STRING = 7
"""The dtype of strings."""
_VALUES = {  # dtype -> NumPy's, the field of the values
    1: (np.float32, "float_val"),
    3: (np.int32, "int_val"),
    STRING: (object, "string_val"),
    9: (np.int64, "int64_val"),
    10: (np.bool_, "bool_val"),
}
_LOOPBACK = ("localhost", "127.", "::1")
# A server that restarts ends its calls in flight; asking for a caption twice changes nothing.
_RETRIES = {
    "maxAttempts": 5,
    "initialBackoff": "0.1s",
    "maxBackoff": "1s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
}


class ServingError(RuntimeError):
    """The server gave no answer, or an error for one.

    Attributes:
        code: gRPC's code.
    """

    def __init__(self, message: str, code: grpc.StatusCode) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Connection:
    """Address of a server and how to talk to it.

    Attributes:
        host: Name or address.
        port: gRPC port.
        tls: Encrypt, and check the server's certificate.
        ca_file: PEM file of the authorities to trust; the system's own by default. Implies `tls`.
        cert_file: PEM file of the client's certificate, for a server that asks for one. Implies
            `tls`.
        key_file: PEM file of the certificate's private key.
        timeout: Seconds until the caller gives up, retries included.

    Raises:
        ValueError: A value is invalid, or only one of `cert_file` and `key_file` is given.
    """

    host: str = "127.0.0.1"
    port: int = 8500
    tls: bool = False
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    timeout: float = 30.0

    def __post_init__(self) -> None:
        if not 1 <= self.port <= 65535:
            raise invalid_value("port", "1 to 65535", self.port)
        if not 0 < self.timeout < math.inf:
            raise invalid_value("timeout", "a positive number of seconds", self.timeout)
        if bool(self.cert_file) != bool(self.key_file):
            given = "cert alone" if self.cert_file else "key alone"
            raise invalid_value("cert", "a certificate and its key, or neither", given)

    @property
    def address(self) -> str:
        """Host and port, as gRPC writes them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def _encrypted(self) -> bool:
        return bool(self.tls or self.ca_file or self.cert_file)

    def open(self) -> grpc.Channel:
        """Opens a channel, which connects at the first call.

        Raises:
            OSError: A PEM file cannot be read.
        """
        service = {"name": [{"service": "tensorflow.serving.PredictionService"}]}
        config = {"methodConfig": [service | {"retryPolicy": _RETRIES}]}
        options = [
            ("grpc.max_receive_message_length", MOST_BYTES),
            ("grpc.max_send_message_length", -1),
            ("grpc.service_config", json.dumps(config)),
            # A server that comes back is found within a second.
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
            # No proxy stands between this machine and itself.
            ("grpc.enable_http_proxy", int(not self.host.startswith(_LOOPBACK))),
        ]
        if not self._encrypted:
            return grpc.insecure_channel(self.address, options)
        files = (self.ca_file, self.key_file, self.cert_file)
        pem = [path.read_bytes() if path else None for path in files]
        return grpc.secure_channel(self.address, grpc.ssl_channel_credentials(*pem), options)

    def call(self, method: Callable[..., Any], request: Any) -> Any:
        """Calls a method of a channel; gRPC repeats it if the server restarts.

        Raises:
            ServingError: The server gave no answer, or an error for one.
        """
        try:
            return method(request, timeout=self.timeout)
        except grpc.RpcError as error:
            raise self._explain(error, request.model_spec.name) from error

    def _explain(self, error: grpc.RpcError, model: str) -> ServingError:
        code, details = error.code(), printable(error.details() or "no details")
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
            code, message = grpc.StatusCode.UNAVAILABLE, self._explain_unavailable(details)
        elif code == grpc.StatusCode.DEADLINE_EXCEEDED:
            message = (
                f"{self.address} gave no answer within {self.timeout:g} seconds: allow more "
                "time, or send fewer images at once."
            )
        elif code == grpc.StatusCode.NOT_FOUND:
            message = f"{self.address} does not serve this model or version: {details}."
        elif "larger than max" in details:
            message = f"The request or its answer is too large: {details}"
        else:
            message = f"{self.address} refuses the request to {model!r}: {code.name}: {details}"
        return ServingError(message, code)

    def _explain_unavailable(self, details: str) -> str:
        lower = details.lower()
        if "handshake failed" in lower or "certificate" in lower:
            return f"No TLS with {self.address}: is it the right --ca-file and host? ({details})"
        if "connection refused" in lower:
            return (
                f"No server answers on {self.address}: is it running? ({details}) Start a local "
                "one with `python -m serving.local_server EXPORT`."
            )
        if "socket closed" in lower:
            wanted = "a client certificate (--cert, --key)" if self._encrypted else "TLS (--tls)"
            return f"{self.address} closed the connection: does it want {wanted}? ({details})"
        return f"{self.address} is unavailable: {details}"


def build_messages(messages: dict[str, list], package: str = "sat_tf.serving") -> dict[str, type]:
    """Makes message classes from a table.

    Args:
        messages: Fields of each message, `(number, name, type)`: `[type]` if repeated, `{"STRING":
            type}` for a map. Types in capitals are the protocol's, others messages of the table.
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
