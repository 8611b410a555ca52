"""One version of a model, loaded into a session and called; failures in TF Serving's words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import grpc
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from serving.saved_model import load_session
from serving.versions import WARM_UP_FILE

MAX_ROWS = 32
"""Images per request, as in TF Serving's `batching.config`."""
MAX_BYTES = 64 * 2**20

_DEFAULT_SIGNATURE = "serving_default"
_MAX_MILLISECONDS = 2**31 - 1
_MAX_DIMENSIONS = 32  # TensorFlow's conversion to NumPy crashes on strings of more
_BYTES_PER_STRING = 24  # kept by the runtime beside the characters
# Of a message, as in TF Serving: gRPC sends it as headers, which are limited to a few kilobytes.
_MESSAGE_BYTES = 1024
_PYTHONS_HEADING = "Graph execution error:\n\n"  # in front of the runtime's own words
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_NO_VALUES = (types_pb2.DT_INVALID, types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT)


class StatusError(Exception):
    """A call, or the load of a version, that ends with a status other than OK."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def invalid(message: str) -> StatusError:
    """Returns the status of a request that is wrong, whatever the server's state."""
    return StatusError(grpc.StatusCode.INVALID_ARGUMENT, message)


def not_found(message: str) -> StatusError:
    """Returns the status of a request for a model or version that is not served."""
    return StatusError(grpc.StatusCode.NOT_FOUND, message)


def status_of(error: Exception) -> StatusError:
    """Returns the status of an exception: the runtime's own if it raised one, else INTERNAL."""
    if isinstance(error, StatusError):
        return error
    if isinstance(error, tf.errors.OpError):
        code = _CODES.get(error.error_code, grpc.StatusCode.UNKNOWN)
        message = (error.message or type(error).__name__).removeprefix(_PYTHONS_HEADING)
        return StatusError(code, message)
    return StatusError(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")


def cut(message: str) -> str:
    """Cuts a message to 1,024 bytes, with a note."""
    content = message.encode("utf-8", "replace")
    if len(content) <= _MESSAGE_BYTES:
        return message
    return content[:_MESSAGE_BYTES].decode("utf-8", "ignore") + "...TRUNCATED"


class Servable:
    """A SavedModel in its own session, warmed up; the session ends with the object.

    Args:
        path: The version's folder.
        max_bytes: Memory that an input may take; a few bytes can claim to be a huge tensor.

    Raises:
        Exception: The folder is not a SavedModel with the tag `serve`, or a warm-up request
            fails; TensorFlow raises several types.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._session, loaded = load_session(path)
        found = loaded.signature_def.items()
        # Without inputs there is the one that initialises the graph.
        self._signatures = {name: signature for name, signature in found if signature.inputs}
        inputs = [i for s in self._signatures.values() for i in s.inputs.values()]
        # The runtime's own code reads tensors, and so what the real server accepts is accepted
        # here. In the session: what eager operations fail to read leaks memory.
        with self._session.graph.as_default(), tf.device("/CPU:0"):
            self._content = tf.compat.v1.placeholder(tf.string, [])
            self._parsed = {
                dtype: tf.io.parse_tensor(self._content, dtype)
                for dtype in {info.dtype for info in inputs}
            }
        self._session.graph.finalize()
        self._warm_up(path / WARM_UP_FILE)

    def predict(
        self, request: predict_pb2.PredictRequest, seconds: float | None = None
    ) -> predict_pb2.PredictResponse:
        """Runs a signature.

        Returns:
            The outputs asked for, or all of them; of `model_spec` the signature is filled in.

        Raises:
            StatusError: The request does not fit the model.
            tf.errors.OpError: The runtime's own errors, a passed deadline among them.
        """
        name = request.model_spec.signature_name or _DEFAULT_SIGNATURE
        signature = self._signatures.get(name)
        if signature is None:
            message = f'Serving signature key "{name}" not found.'
            raise StatusError(grpc.StatusCode.FAILED_PRECONDITION, message)
        feeds = self._read_inputs(signature, request.inputs)
        aliases = _chosen_outputs(signature, request.output_filter)
        # All of them: the session compiles each set of outputs, and keeps it for good.
        fetches = {alias: info.name for alias, info in signature.outputs.items()}
        values = self._run(fetches, feeds, seconds)
        response = predict_pb2.PredictResponse()
        response.model_spec.signature_name = name
        for alias in aliases:
            # With a dtype, as that of an array of no strings cannot be guessed.
            proto = tf.make_tensor_proto(values[alias], signature.outputs[alias].dtype)
            response.outputs[alias].CopyFrom(proto)
        return response

    def _read_inputs(self, signature, inputs) -> dict[str, np.ndarray]:
        """Reads the tensors sent, by their names in the graph."""
        sent, expected = set(inputs), set(signature.inputs)
        if len(sent) != len(expected):
            raise invalid(
                f"input size does not match signature: {len(sent)}!={len(expected)} "
                f"len({_listed(sent)}) != len({_listed(expected)}). "
                f"Sent extra: {_listed(sent - expected)}. "
                f"Missing but required: {_listed(expected - sent)}."
            )
        for alias in sorted(sent - expected):
            raise invalid(
                f"input tensor alias not found in signature: {alias}. "
                f"Inputs expected to be in the set {_listed(expected)}."
            )
        feeds = {}
        for index, alias in enumerate(sorted(sent)):
            info = signature.inputs[alias]
            feeds[info.name] = self._read(inputs[alias], info, alias, index)
        return feeds

    def _read(
        self,
        proto: tensor_pb2.TensorProto,
        expected: meta_graph_pb2.TensorInfo,
        alias: str,
        index: int,
    ) -> np.ndarray:
        """Reads a tensor, unless it is none, of another dtype, or larger than it may be."""
        unreadable = invalid(f"tensor parsing error: {alias}")
        if proto.dtype != expected.dtype:
            if proto.dtype in _NO_VALUES or proto.dtype not in types_pb2.DataType.values():
                raise unreadable
            wanted, got = (
                types_pb2.DataType.Name(dtype).removeprefix("DT_").lower()
                for dtype in (expected.dtype, proto.dtype)
            )
            raise invalid(f"Expects arg[{index}] to be {wanted} but {got} is provided")
        rank = len(proto.tensor_shape.dim)
        if rank > _MAX_DIMENSIONS:
            raise invalid(
                f"Expects {alias} to have a shape of at most {_MAX_DIMENSIONS} dimensions but "
                f"{rank} are provided"
            )
        if _claimed_bytes(proto) > self._max_bytes:
            raise unreadable
        try:
            feeds = {self._content: proto.SerializeToString()}
            value = self._session.run(self._parsed[proto.dtype], feeds)
        except tf.errors.InvalidArgumentError:
            raise unreadable from None
        # A single string comes as bytes, of which NumPy would drop trailing zeros.
        value = np.asarray(value, object if proto.dtype == types_pb2.DT_STRING else None)
        # Of another rank, the first dimension is not a batch: the session names both shapes.
        is_batch = expected.tensor_shape.unknown_rank or rank == len(expected.tensor_shape.dim)
        if rank and is_batch and len(value) > MAX_ROWS:
            raise invalid(
                f"Task size {len(value)} is larger than maximum input batch size {MAX_ROWS}"
            )
        return value

    def _run(
        self, fetches: Mapping[str, str], feeds: Mapping[str, np.ndarray], seconds: float | None
    ) -> dict[str, np.ndarray]:
        options = None
        if seconds is not None:
            milliseconds = min(max(int(seconds * 1000), 1), _MAX_MILLISECONDS)
            options = tf.compat.v1.RunOptions(timeout_in_ms=milliseconds)
        try:
            return self._session.run(fetches, feeds, options=options)
        except (TypeError, ValueError) as error:  # raised where shapes do not fit
            raise invalid(str(error)) from error

    def _warm_up(self, path: Path) -> None:
        """Replays the requests that come with the model, as the first of a kind is slow."""
        if not path.is_file():
            return
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            self.predict(log.predict_log.request)


def _claimed_bytes(proto: tensor_pb2.TensorProto) -> int:
    """Memory that the tensor takes once it is read: a last value stands for all that follow."""
    # A size of 0 does not make up for the others: NumPy refuses [0, 2^62].
    count = math.prod(max(dim.size, 1) for dim in proto.tensor_shape.dim)
    if proto.dtype != types_pb2.DT_STRING:
        return count * tf.as_dtype(proto.dtype).size
    repeated = max(count - len(proto.string_val), 0)
    longest = len(proto.string_val[-1]) if proto.string_val else 0
    return count * _BYTES_PER_STRING + repeated * longest


def _chosen_outputs(signature, output_filter) -> list[str]:
    chosen: list[str] = []
    for alias in output_filter:
        if alias not in signature.outputs:
            raise invalid(
                f"output tensor alias not found in signature: {alias} "
                f"Outputs expected to be in the set {_listed(signature.outputs)}."
            )
        if alias in chosen:
            raise invalid(f"duplicate output tensor alias: {alias}")
        chosen.append(alias)
    return chosen or sorted(signature.outputs)


def _listed(names: Iterable[str]) -> str:
    return "{" + ",".join(sorted(names)) + "}"
