"""TF Serving's Predict, metadata, status and health for one version of a model, over gRPC.

The generated servicers are not used: grpcio never releases a call with a request that it cannot
parse, so requests arrive here as bytes. A method that is not listed is answered UNIMPLEMENTED.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from concurrent import futures
from pathlib import Path

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf import message as protobuf
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    predict_pb2,
    prediction_log_pb2,
)
from tensorflow_serving.apis.model_pb2 import ModelSpec

from sat_tf.util.files import literal_path
from serving.versions import WARM_UP_FILE

MAX_ROWS = 32
"""Images per request, as in TF Serving's `batching.config`."""
MAX_BYTES = 256 * 2**20
"""Of a request, and of an input."""

_DEFAULT_SIGNATURE = "serving_default"
_THREADS = 16
_MOST_CALLS = 144  # at a time; gRPC refuses more as RESOURCE_EXHAUSTED
_MESSAGE = 1024  # characters, as in TF Serving: gRPC sends messages as headers
_PYTHONS_HEADING = "Graph execution error:\n\n"  # before the runtime's own words
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_SERVING = b"\x08\x01"  # a HealthCheckResponse
_LOG = logging.getLogger(__name__)


class StatusError(Exception):
    """A call that ends with a status other than OK."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def invalid(message: str) -> StatusError:
    """Returns the status of a wrong request."""
    return StatusError(grpc.StatusCode.INVALID_ARGUMENT, message)


def status_of(error: Exception) -> StatusError:
    """Returns the status of an exception: the runtime's own if it raised one, else INTERNAL."""
    if isinstance(error, tf.errors.OpError):
        code = _CODES.get(error.error_code, grpc.StatusCode.UNKNOWN)
        message = (error.message or type(error).__name__).removeprefix(_PYTHONS_HEADING)
        return StatusError(code, message)
    return StatusError(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")


class ModelServer:
    """A server of one version in this process; it listens once it is constructed.

    Args:
        servable: The version.
        model: The name callers ask for.
        host: Address to listen on.
        port: 0 takes a free one, which `port` holds afterwards.

    Raises:
        OSError: The port is taken.
    """

    def __init__(
        self,
        servable: Servable,
        model: str = "captioner",
        host: str = "127.0.0.1",
        port: int = 8500,
    ) -> None:
        self._servable, self._model = servable, model
        options = [
            ("grpc.max_receive_message_length", MAX_BYTES),
            # Without it two servers can share a port, and callers meet either.
            ("grpc.so_reuseport", 0),
        ]
        pool = futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="call")
        self._server = grpc.server(pool, options=options, maximum_concurrent_rpcs=_MOST_CALLS)
        metadata, status = get_model_metadata_pb2, get_model_status_pb2
        services = {
            "tensorflow.serving.PredictionService": {
                "Predict": _handler(predict_pb2.PredictRequest, self._predict),
                "GetModelMetadata": _handler(metadata.GetModelMetadataRequest, self._metadata),
            },
            "tensorflow.serving.ModelService": {
                "GetModelStatus": _handler(status.GetModelStatusRequest, self._status)
            },
            "grpc.health.v1.Health": {
                "Check": grpc.unary_unary_rpc_method_handler(lambda *_: _SERVING)
            },
        }
        for name, methods in services.items():
            handler = grpc.method_handlers_generic_handler(name, methods)
            self._server.add_generic_rpc_handlers((handler,))
        address = f"[{host}]" if ":" in host else host
        try:
            self.port = self._server.add_insecure_port(f"{address}:{port}")
        except RuntimeError as error:
            raise OSError(f"Cannot listen on {address}:{port}: is another server there?") from error
        self.address = f"{address}:{self.port}"
        self._server.start()

    def stop(self, grace_seconds: float = 30.0) -> None:
        """Closes the port, and cancels the calls that take longer than the grace."""
        self._server.stop(grace_seconds).wait(grace_seconds + 1)

    def _predict(self, request, context: grpc.ServicerContext):
        self._check(request.model_spec)
        response = self._servable.predict(request, context.time_remaining())
        self._fill(response.model_spec)
        return response

    def _metadata(self, request, _):
        self._check(request.model_spec)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        self._fill(response.model_spec)
        signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=self._servable.described)
        response.metadata["signature_def"].Pack(signatures)
        return response

    def _status(self, request, _):
        self._check(request.model_spec)
        number, response = self._servable.version, get_model_status_pb2.GetModelStatusResponse()
        available = get_model_status_pb2.ModelVersionStatus.AVAILABLE
        state = response.model_version_status.add(version=number, state=available)
        state.status.SetInParent()  # OK, which the real server sends too
        return response

    def _check(self, spec: ModelSpec) -> None:
        """Raises a StatusError if a request asks for another model or version."""
        if not spec.name:
            raise invalid("ModelSpec has no name specified.")
        if spec.version_label:  # there are none here
            raise invalid(f"Unrecognized servable version label: {spec.version_label}")
        wanted = spec.version.value if spec.HasField("version") else None
        if spec.name != self._model or wanted not in (None, self._servable.version):
            which = f"Latest({spec.name})" if wanted is None else f"Specific({spec.name}, {wanted})"
            raise StatusError(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: {which}")

    def _fill(self, spec: ModelSpec) -> None:
        spec.name, spec.version.value = self._model, self._servable.version


def _handler(request_type: type[protobuf.Message], method: Callable) -> grpc.RpcMethodHandler:
    """Returns a handler that reads a request from bytes, and turns exceptions into statuses."""

    def answer(content: bytes, context: grpc.ServicerContext) -> protobuf.Message:
        try:
            request = request_type.FromString(content)
            if not request.HasField("model_spec"):
                raise invalid("Missing ModelSpec")
            return method(request, context)
        except StatusError as error:
            status = error
        except protobuf.DecodeError as error:
            status = StatusError(grpc.StatusCode.INTERNAL, f"No request: {error}")
        except Exception as error:
            status = status_of(error)
            if status.code == grpc.StatusCode.INTERNAL:
                _LOG.exception("A call failed")
        context.abort(status.code, status.message[:_MESSAGE])

    return grpc.unary_unary_rpc_method_handler(
        answer, response_serializer=lambda response: response.SerializeToString()
    )


class Servable:
    """A SavedModel in its own session, warmed up.

    Args:
        path: The version's folder; its name is a number.

    Attributes:
        version: The number.
        described: Its signatures by name, as `saved_model.pb` has them.

    Raises:
        Exception: The folder is not a SavedModel with the tag `serve`, or a warm-up request
            fails; TensorFlow raises several types.
    """

    def __init__(self, path: Path) -> None:
        self.version = int(path.name)
        config = tf.compat.v1.ConfigProto()
        config.gpu_options.allow_growth = True
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        with self._session.graph.as_default(), literal_path(path) as folder:
            loaded = tf.compat.v1.saved_model.load(self._session, ["serve"], str(folder))
        self.described = dict(loaded.signature_def)
        self._session.graph.finalize()
        if (path / WARM_UP_FILE).is_file():  # the first call of a kind is slow
            for record in tf.data.TFRecordDataset(str(path / WARM_UP_FILE)).as_numpy_iterator():
                log = prediction_log_pb2.PredictionLog.FromString(record)
                self.predict(log.predict_log.request)

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
        signature = self.described.get(name)
        if signature is None or not signature.inputs:  # without inputs: the graph's initialiser
            message = f'Serving signature key "{name}" not found.'
            raise StatusError(grpc.StatusCode.FAILED_PRECONDITION, message)
        feeds = self._read_inputs(signature, request.inputs)
        aliases = _chosen_outputs(signature, request.output_filter)
        # All of them: the session compiles each set of outputs and keeps it.
        fetches = {alias: info.name for alias, info in signature.outputs.items()}
        seconds = 1e6 if seconds is None else min(seconds, 1e6)  # threads wait no longer
        options = tf.compat.v1.RunOptions(timeout_in_ms=max(int(seconds * 1000), 1))
        try:
            values = self._session.run(fetches, feeds, options=options)
        except (TypeError, ValueError) as error:  # raised where shapes do not fit
            raise invalid(str(error)) from error
        response = predict_pb2.PredictResponse()
        response.model_spec.signature_name = name
        for alias in aliases:  # with a dtype: that of an array of no strings cannot be guessed
            proto = tf.make_tensor_proto(values[alias], signature.outputs[alias].dtype)
            response.outputs[alias].CopyFrom(proto)
        return response

    def _read_inputs(self, signature, inputs) -> dict[str, np.ndarray]:
        expected = sorted(signature.inputs)
        for alias in sorted(set(inputs) ^ set(expected)):
            raise invalid(
                f"input tensor alias not found in signature: {alias}. "
                f"Inputs expected to be in the set {_listed(expected)}."
            )
        return {
            signature.inputs[alias].name: _read(inputs[alias], signature.inputs[alias], alias, n)
            for n, alias in enumerate(expected)
        }


def _read(
    proto: tensor_pb2.TensorProto, expected: meta_graph_pb2.TensorInfo, alias: str, index: int
) -> np.ndarray:
    """Reads a tensor, unless it is of another dtype or rank, or larger than it may be."""
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    if proto.dtype not in types_pb2.DataType.values():
        raise invalid(f"tensor parsing error: {alias}")
    if proto.dtype != expected.dtype:
        wanted, got = (
            types_pb2.DataType.Name(dtype).removeprefix("DT_").lower()
            for dtype in (expected.dtype, proto.dtype)
        )
        raise invalid(f"Expects arg[{index}] to be {wanted} but {got} is provided")
    if len(sizes) != len(expected.tensor_shape.dim):
        dimensions = len(expected.tensor_shape.dim)
        raise invalid(f"{alias} has the shape {sizes[:8]}: expected {dimensions} dimensions")
    if sizes and sizes[0] > MAX_ROWS:
        message = f"Task size {sizes[0]} is larger than maximum input batch size {MAX_ROWS}"
        raise invalid(message)
    # A few bytes can claim to be a huge tensor; a size of 0 does not make up for the others.
    count = math.prod(max(size, 1) for size in sizes)
    if min(sizes, default=0) < 0 or count * tf.as_dtype(proto.dtype).size > MAX_BYTES:
        raise invalid(f"tensor parsing error: {alias}")
    try:
        return tf.make_ndarray(proto)
    except (TypeError, ValueError):
        raise invalid(f"tensor parsing error: {alias}") from None


def _chosen_outputs(signature, output_filter) -> list[str]:
    for alias in output_filter:
        if alias not in signature.outputs:
            raise invalid(
                f"output tensor alias not found in signature: {alias} "
                f"Outputs expected to be in the set {_listed(signature.outputs)}."
            )
    return list(output_filter) or sorted(signature.outputs)


def _listed(names: Iterable[str]) -> str:
    return "{" + ",".join(sorted(names)) + "}"
