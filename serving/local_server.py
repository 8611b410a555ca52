"""Serve an export on this machine without Docker: `python -m serving.local_server EXPORT_DIR`.

Replaces TF Serving in development and tests: Predict, metadata, status and health of one
version, over TensorFlow's C++ session. New versions, labels, batching, TLS and REST are TF
Serving's alone.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from sat_tf.util.commands import exit_status, loading, parse_flags
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import Range, check_fields
from serving.versions import GRAPH_FILE, find_versions

_CLOSING_SECONDS = 3.0  # after the grace period, to end the interpreter


@dataclass(frozen=True)
class Arguments:
    """Serve the latest version of an export as TF Serving would, for development and tests."""

    export_dir: tyro.conf.Positional[Path]
    """Folder of the version folders: EXPORT_DIR/1, EXPORT_DIR/2, ..."""
    port: int = 8500
    """0 takes a free one."""
    host: str = "127.0.0.1"
    """0.0.0.0 lets other machines in; there is no TLS."""
    model: str = "captioner"
    """The name callers ask for."""
    grace_seconds: Annotated[float, Range(0, 86_400)] = 30.0
    """Time for calls in flight once the server has to stop."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = parse_flags(Arguments, argv, "serving.local_server")
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> int:
    """Serves until SIGTERM or SIGINT; a second one ends the calls in flight too."""
    check_fields(arguments)
    check_port(arguments.host, arguments.port)
    number, version = newest_version(arguments.export_dir)
    print(f"Loading version {number} of {arguments.export_dir} ...", file=sys.stderr, flush=True)
    with loading():  # after the flags were checked: TensorFlow takes seconds
        import tensorflow as tf

        from serving.model_server import ModelServer, Servable

    tf.get_logger().setLevel(logging.ERROR)  # the session's loader calls itself deprecated
    told = threading.Event()

    def stop(signal_number: int, _) -> None:
        told.set()
        # A call that never ends keeps its thread, and so the interpreter.
        last = threading.Timer(arguments.grace_seconds + _CLOSING_SECONDS, os._exit, [0])
        last.daemon = True
        last.start()
        signal.signal(signal_number, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    server = ModelServer(Servable(version), arguments.model, arguments.host, arguments.port)
    print(f"Serving {arguments.model} on {server.address}", flush=True)
    # A signal that arrives just before an endless wait begins would be handled only after it.
    while not told.wait(1.0):
        pass
    server.stop(arguments.grace_seconds)
    return 0


def check_port(host: str, port: int) -> None:
    """Raises a ValueError or an OSError if no server can listen on a port; 0 is any free one."""
    if not 0 <= port <= 65535:
        raise invalid_value("--port", "0 to 65535", port)
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            # As servers do: a port whose last connections are still closing is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise OSError(
            f"Cannot listen on port {port} of {host} ({error.strerror}): stop the server that "
            "listens there, or choose another with `--port` or `--host`."
        ) from error


def newest_version(export_dir: Path) -> tuple[int, Path]:
    """Returns number and folder of the newest version; raises a ValueError if there is none."""
    found = find_versions(export_dir) if export_dir.is_dir() else {}
    if not found:
        inner = export_dir / "export"
        advice = f" Did you mean {inner}?" if inner.is_dir() else ""
        expected = f"a folder that holds version folders (1, 2, ...) with a {GRAPH_FILE} each"
        raise ValueError(f"{invalid_value('export_dir', expected, str(export_dir))}{advice}")
    return max(found.items())


if __name__ == "__main__":
    sys.exit(main())
