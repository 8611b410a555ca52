"""TF Serving's Predict without TensorFlow: messages, connections, errors in plain words.

The stubs of tensorflow-serving-api import TensorFlow, which takes seconds, so the few messages of
Predict are described here; they are the same on the wire.
"""

from __future__ import annotations

import json
import math
import os
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
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
"""Variables of the environment that gRPC reads, in this order."""
# A server that restarts ends its calls in flight; asking for a caption twice changes nothing.
_RETRIES = {
    "maxAttempts": 5,
    "initialBackoff": "0.1s",
    "maxBackoff": "1s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
}
_TLS = "Is it the right --ca-file and host?"
_HINTS = (  # code, words of its details, what to do
    ("UNAVAILABLE", "certificate", _TLS),
    ("UNAVAILABLE", "handshake failed", _TLS),
    ("UNAVAILABLE", "socket closed", "Does it want TLS (--tls) or a certificate (--cert, --key)?"),
    (
        "UNAVAILABLE",
        "refused",
        "Is it running? `python -m serving.local_server EXPORT` starts one.",
    ),
    ("DEADLINE_EXCEEDED", "", "Allow more seconds (--timeout), or send fewer images at once."),
    ("NOT_FOUND", "", "It does not serve this model or version."),
    ("RESOURCE_EXHAUSTED", "larger than max", "The request or its answer is too large."),
)


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
        if not 0 < self.timeout < math.inf:
            raise invalid_value("timeout", "a positive number of seconds", self.timeout)
        if bool(self.cert_file) != bool(self.key_file):
            given = "cert alone" if self.cert_file else "key alone"
            raise invalid_value("cert", "a certificate and its key, or neither", given)

    @property
    def address(self) -> str:
        """Host and port, as gRPC writes them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def open(self) -> grpc.Channel:
        """Opens a channel, which connects at the first call.

        Raises:
            OSError: A PEM file cannot be read.
        """
        service = [{"service": "tensorflow.serving.PredictionService"}]
        config = {"methodConfig": [{"name": service, "retryPolicy": _RETRIES}]}
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
        if not (self.tls or self.ca_file or self.cert_file):
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
            code, details = error.code(), printable(error.details() or "no details")
            if code == grpc.StatusCode.CANCELLED:  # as the server ended
                code = grpc.StatusCode.UNAVAILABLE
            words = details.lower()
            hint = next((hint for c, part, hint in _HINTS if c == code.name and part in words), "")
            proxy = next((name for name in _PROXIES if os.environ.get(name)), None)
            far = not self.host.startswith(_LOOPBACK)
            if code == grpc.StatusCode.UNAVAILABLE and proxy is not None and far:
                hint = f"{proxy} is set: to go past the proxy, add {self.host} to no_proxy."
            message = f"{self.address}: {code.name}, {details.rstrip('.')}. {hint}"
            raise ServingError(message.rstrip(), code) from error


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
