"""The local server as an object: the services, the health check and the model behind them."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from concurrent import futures
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from serving.local_server.admission import Admission
from serving.local_server.batching_parameters import BatchingParameters
from serving.local_server.servable import Limits, Servable
from serving.local_server.services import MODEL_SERVICE, PREDICTION_SERVICE, Services
from serving.local_server.versions import Versions
from serving.versions import GRAPH_FILE

_LOG = logging.getLogger(__name__)
_SPARE_THREADS = 16  # never taken by predictions: they answer for health and refuse calls


class LocalServer:
    """A server in this process, loaded and listening once it is constructed.

    Args:
        export_dir: Folder of the version folders.
        model: The name callers ask for.
        host: Address to listen on.
        port: 0 takes a free one, which `address` holds.
        labels: Versions by label.
        limits: Limits of one request.
        batching: Joins the requests of several callers; None runs each alone.
        admission: Bounds the predictions at work and waiting.
        poll_seconds: How often to look for new versions.
        warm_up: Signatures to warm up, if a model has any of them; otherwise all.
        rewrite: Let TensorFlow rewrite graphs (Grappler) before they run first.

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
        labels: Mapping[str, int] | None = None,
        limits: Limits | None = None,
        batching: BatchingParameters | None = None,
        admission: Admission | None = None,
        poll_seconds: float = 1.0,
        warm_up: Collection[str] = (),
        rewrite: bool = True,
    ) -> None:
        limits = limits or Limits()
        folder = Path(export_dir)

        def load(path: Path) -> Servable:
            return Servable(path, limits, batching, warm_up, rewrite)

        self.versions = Versions(folder, model, load, labels)
        self.versions.refresh()
        try:
            if not self.versions.available():
                raise ValueError(_nothing_to_serve(folder, self.versions))
            self._health = health.HealthServicer()
            self._admission = admission or Admission()
            self._server = self._make_server(limits)
            self.port = _bind(self._server, host, port)
        except BaseException:
            self.versions.close()
            raise
        self.address = _join(host, self.port)
        self._server.start()
        self.versions.watch(poll_seconds)
        _LOG.info("%s is served on %s", model, self.address)

    def stop(self, grace_seconds: float = 30.0) -> None:
        """Refuses new predictions, finishes those in flight, closes the port, unloads.

        Args:
            grace_seconds: Time for the calls in flight; those that take longer are cancelled.
        """
        end = time.monotonic() + grace_seconds
        self._health.enter_graceful_shutdown()
        self._admission.close(grace_seconds)
        self._server.stop(max(end - time.monotonic(), 0)).wait()
        self.versions.close()

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def _make_server(self, limits: Limits) -> grpc.Server:
        options = [
            ("grpc.max_receive_message_length", limits.bytes),
            # Without it two servers can share a port, and callers meet either.
            ("grpc.so_reuseport", 0),
        ]
        threads = self._admission.places + _SPARE_THREADS
        pool = futures.ThreadPoolExecutor(threads, thread_name_prefix="call")
        server = grpc.server(pool, options=options)
        services = Services(self.versions, self._admission)
        server.add_generic_rpc_handlers(services.handlers())
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        for name in (PREDICTION_SERVICE, MODEL_SERVICE):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return server


def _bind(server: grpc.Server, host: str, port: int) -> int:
    address = _join(host, port)
    try:
        return server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"Cannot listen on {address}: is another server there?") from error


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _nothing_to_serve(folder: Path, versions: Versions) -> str:
    failed = versions.failures()
    if failed:
        number, message = max(failed.items())
        return f"No version in {folder} can be served. Version {number}: {message}"
    inner = folder / "export"
    advice = f" Did you mean {inner}?" if inner.is_dir() else ""
    return (
        "Received an invalid value for argument `export_dir`: expected a folder that holds "
        f"version folders (1, 2, ...) with a {GRAPH_FILE} each, got {str(folder)!r}.{advice}"
    )
