"""The local server: TF Serving's services over one model, on a port.

The generated servicers are not used: grpcio never lets go of a call whose request it cannot
parse, so requests arrive here as bytes. A method that is not listed is answered UNIMPLEMENTED.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import grpc
from google.protobuf import message as protobuf
from tensorflow_serving.apis.get_model_status_pb2 import (
    GetModelStatusRequest,
    GetModelStatusResponse,
)
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse

from serving.local_server.servable import MAX_BYTES, Servable, StatusError, cut, invalid, status_of
from serving.local_server.versions import Versions
from serving.versions import GRAPH_FILE

PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"
HEALTH_SERVICE = "grpc.health.v1.Health"

_LOG = logging.getLogger(__name__)
_SPARE_THREADS = 16  # never taken by predictions: they answer for health and refuse calls
_NO_DEADLINE = 1e6  # seconds
_CLOSING_SECONDS = 1.0  # for gRPC to end the calls that it cancels
_SERVING = b"\x08\x01"  # a HealthCheckResponse

Method = Callable[[protobuf.Message, grpc.ServicerContext], protobuf.Message]


class LocalServer:
    """A server in this process, loaded and listening once it is constructed.

    Args:
        export_dir: Folder of the version folders.
        model: The name callers ask for.
        host: Address to listen on.
        port: 0 takes a free one, which `address` holds.
        max_bytes: Largest request.
        running: Predictions that run at a time.
        waiting: Predictions that wait for their turn; further ones are refused.
        poll_seconds: How often to look for new versions.

    Raises:
        ValueError: The folder has no version that can be served.
        OSError: The folder cannot be read, or the port is taken.
    """

    def __init__(
        self,
        export_dir: Path | str,
        model: str = "captioner",
        host: str = "127.0.0.1",
        port: int = 8500,
        max_bytes: int = MAX_BYTES,
        running: int = 16,
        waiting: int = 128,
        poll_seconds: float = 1.0,
    ) -> None:
        folder = Path(export_dir)
        self.versions = Versions(folder, model, lambda path: Servable(path, max_bytes))
        self.versions.refresh()
        if self.versions.served is None:
            raise ValueError(_nothing_to_serve(folder, self.versions))
        self._turns = threading.Semaphore(running)
        self._places = threading.Semaphore(running + waiting)
        self._server = self._make_server(max_bytes, running + waiting + _SPARE_THREADS)
        address = f"[{host}]" if ":" in host else host
        try:
            self.port = self._server.add_insecure_port(f"{address}:{port}")
        except RuntimeError as error:
            raise OSError(f"Cannot listen on {address}:{port}: is another server there?") from error
        self.address = f"{address}:{self.port}"
        self._server.start()
        self.versions.watch(poll_seconds)
        _LOG.info("%s is served on %s", model, self.address)

    def stop(self, grace_seconds: float = 30.0) -> None:
        """Closes the port, finishes the calls in flight, unloads.

        Args:
            grace_seconds: Time for the calls in flight; those that take longer are cancelled.
        """
        self._server.stop(grace_seconds).wait(grace_seconds + _CLOSING_SECONDS)
        self.versions.close()

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def _make_server(self, max_bytes: int, threads: int) -> grpc.Server:
        options = [
            ("grpc.max_receive_message_length", max_bytes),
            # Without it two servers can share a port, and callers meet either.
            ("grpc.so_reuseport", 0),
        ]
        pool = futures.ThreadPoolExecutor(threads, thread_name_prefix="call")
        server = grpc.server(pool, options=options)
        services = {
            PREDICTION_SERVICE: {"Predict": rpc_handler(PredictRequest, self._predict)},
            MODEL_SERVICE: {"GetModelStatus": rpc_handler(GetModelStatusRequest, self._status)},
            HEALTH_SERVICE: {"Check": grpc.unary_unary_rpc_method_handler(lambda *_: _SERVING)},
        }
        for name, methods in services.items():
            handler = grpc.method_handlers_generic_handler(name, methods)
            server.add_generic_rpc_handlers((handler,))
        return server

    def _predict(self, request: PredictRequest, context: grpc.ServicerContext) -> PredictResponse:
        """Runs a signature of the version asked for."""
        version, servable = self.versions.find(request.model_spec)
        with self._turn(context):
            response = servable.predict(request, _seconds_left(context))
        response.model_spec.name = request.model_spec.name
        response.model_spec.version.value = version
        return response

    @contextlib.contextmanager
    def _turn(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Waits for a turn to run a prediction, and holds it."""
        if not self._places.acquire(blocking=False):
            raise StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED, "All places are taken")
        try:
            with self._turns:
                if not context.is_active():  # it waited until nobody reads the answer
                    raise StatusError(grpc.StatusCode.CANCELLED, "Cancelled")
                yield
        finally:
            self._places.release()

    def _status(self, request: GetModelStatusRequest, _) -> GetModelStatusResponse:
        """Returns the state of the version asked for, or of all."""
        states = self.versions.states(request.model_spec)
        return GetModelStatusResponse(model_version_status=states)


def rpc_handler(request_type: type[protobuf.Message], method: Method) -> grpc.RpcMethodHandler:
    """Returns a handler that reads a request from bytes, and turns exceptions into statuses."""

    def answer(content: bytes, context: grpc.ServicerContext) -> protobuf.Message:
        try:
            try:
                request = request_type.FromString(content)
            except protobuf.DecodeError as error:
                message = f"No request: {error}"
                raise StatusError(grpc.StatusCode.INTERNAL, message) from error
            if not request.HasField("model_spec"):
                raise invalid("Missing ModelSpec")
            return method(request, context)
        except Exception as error:
            status = status_of(error)
            if status is not error and status.code == grpc.StatusCode.INTERNAL:
                _LOG.exception("A call failed")
        context.abort(status.code, cut(status.message))

    return grpc.unary_unary_rpc_method_handler(
        answer, response_serializer=lambda response: response.SerializeToString()
    )


def _seconds_left(context: grpc.ServicerContext) -> float | None:
    """Returns the time until the deadline; None if that is further off than threads wait."""
    seconds = context.time_remaining()
    return seconds if seconds is not None and seconds < _NO_DEADLINE else None


def _nothing_to_serve(folder: Path, versions: Versions) -> str:
    with contextlib.suppress(StatusError):
        newest, *_ = versions.states(ModelSpec(name=versions.model))
        why = newest.status.error_message
        return f"No version in {folder} can be served. Version {newest.version}: {why}"
    inner = folder / "export"
    advice = f" Did you mean {inner}?" if inner.is_dir() else ""
    return (
        "Received an invalid value for argument `export_dir`: expected a folder that holds "
        f"version folders (1, 2, ...) with a {GRAPH_FILE} each, got {str(folder)!r}.{advice}"
    )
