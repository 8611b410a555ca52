"""Calls to a server: a channel, a deadline, retries of what is safe, errors in plain words."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from sat_tf.commands import printable
from sat_tf.errors import invalid_value
from serving.client.protocol import MOST_BYTES

_LOG = logging.getLogger(__name__)

_TRIES = 4  # before a server is waited for
_MOST_SECONDS = 1.0  # between two tries
_CLOSED = "Channel closed!"  # by this side, in gRPC's words
# Of a server that stops, or has not started: asking for a caption twice changes nothing.
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
_TOO_LARGE = "larger than max"  # in gRPC's words


class ServingError(RuntimeError):
    """The server gave no answer, or an error for one.

    Attributes:
        code: gRPC's code.
        too_large: The request, or its answer, is larger than the server or the client allows.
    """

    def __init__(self, message: str, code: grpc.StatusCode, too_large: bool = False) -> None:
        super().__init__(message)
        self.code, self.too_large = code, too_large


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
        timeout: Seconds until the caller gives up, further tries and waiting included.
        wait: Wait for a server that is away; without it, it is an error after a few tries.

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
    wait: bool = True

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

    def open(self) -> grpc.Channel:
        """Opens a channel, which connects at the first call.

        Raises:
            OSError: A PEM file cannot be read.
        """
        options = [
            ("grpc.max_receive_message_length", MOST_BYTES),
            ("grpc.max_send_message_length", -1),
            # A server that comes back is found within a second.
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        if not (self.tls or self.ca_file or self.cert_file):
            return grpc.insecure_channel(self.address, options)
        pem = [
            path.read_bytes() if path else None
            for path in (self.ca_file, self.key_file, self.cert_file)
        ]
        return grpc.secure_channel(self.address, grpc.ssl_channel_credentials(*pem), options)

    def call(self, method: Callable[..., Any], request: Any) -> Any:
        """Calls a method of a channel, several times if the server is away.

        Raises:
            ServingError: The server gave no answer, or an error for one.
        """
        end, cause = time.monotonic() + self.timeout, None
        for tries in itertools.count(1):
            left = max(end - time.monotonic(), 0.001)
            try:
                return method(request, timeout=left, wait_for_ready=tries > _TRIES)
            except grpc.RpcError as error:
                late = error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
                # A passed deadline does not say that nobody was there.
                cause = cause if cause and late else self._explain(error, request)
                over = time.monotonic() >= end or (tries == _TRIES and not self.wait)
                if late or over or not _may_come_back(error):
                    raise cause from error
            if tries == _TRIES:
                _LOG.warning("%s Waiting for it, %g seconds at most.", cause, self.timeout)
            pause = min(0.05 * 2 ** min(tries, 8), _MOST_SECONDS)
            time.sleep(min(pause, max(end - time.monotonic(), 0.0)))

    def _explain(self, error: grpc.RpcError, request: Any) -> ServingError:
        details = printable(error.details() or "no details")
        code = grpc.StatusCode.UNAVAILABLE if error.code() in _AWAY else error.code()
        too_large = code == grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in details
        model = request.model_spec.name
        if code == grpc.StatusCode.UNAVAILABLE:
            message = self._explain_unavailable(details)
        elif code == grpc.StatusCode.DEADLINE_EXCEEDED:
            message = (
                f"{self.address} gave no answer within {self.timeout:g} seconds: allow more "
                "time, or send fewer images at once."
            )
        elif code == grpc.StatusCode.NOT_FOUND:
            message = f"{self.address} does not serve this model or version: {details}."
        elif too_large:
            message = f"The request or its answer is too large: {details}"
        else:
            message = f"{self.address} refuses the request to {model!r}: {code.name}: {details}"
        return ServingError(message, code, too_large)

    def _explain_unavailable(self, details: str) -> str:
        lower = details.lower()
        encrypted = self.tls or self.ca_file or self.cert_file
        if "handshake failed" in lower or "certificate" in lower:
            return f"No TLS with {self.address}: is it the right --ca-file and host? ({details})"
        if "connection refused" in lower:
            # gRPC tells of one address of a name, and a server often listens on one alone.
            named = encrypted and not self.host.replace(".", "").isdigit()
            hint = ", or TLS fails: try its IP address" if named else ""
            return (
                f"No server answers on {self.address}: is it running{hint}? ({details}) A local "
                "one is started by `python -m serving.local_server EXPORT`."
            )
        if "socket closed" in lower:
            wanted = "a client certificate (--cert, --key)" if encrypted else "TLS (--tls)"
            return f"{self.address} closed the connection: does it want {wanted}? ({details})"
        return f"{self.address} is unavailable: {details}"


def _may_come_back(error: grpc.RpcError) -> bool:
    """Returns whether nobody listens, or the server ended the call to restart."""
    details = error.details() or ""
    handshake = "handshake failed" in details.lower()
    return error.code() in _AWAY and details != _CLOSED and not handshake
