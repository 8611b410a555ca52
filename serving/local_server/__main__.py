"""Serve an export on this machine without Docker: `python -m serving.local_server EXPORT_DIR`.

A stand-in for TF Serving in development and tests: the same gRPC services and statuses, over
TensorFlow's session. Batching, TLS, metrics and REST are TF Serving's alone.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from sat_tf.commands import exit_status, loading, parse_flags, printable
from sat_tf.errors import invalid_value
from sat_tf.fields import Range, check_fields
from serving.address import check_port

_ARENA_MAX = -8  # a parameter of mallopt(3), by glibc's <malloc.h>
_DAY = 86_400
_ROUND_SECONDS = 1.0
_CLOSING_SECONDS = 3.0  # beyond the grace, to unload and to end Python


@dataclass(frozen=True)
class Arguments:
    """Serve an export as TF Serving would, for development and tests."""

    export_dir: tyro.conf.Positional[Path]
    """Folder of the version folders: EXPORT_DIR/1, EXPORT_DIR/2, ..."""
    port: int = 8500
    """0 takes a free one."""
    host: str = "127.0.0.1"
    """0.0.0.0 lets other machines in; there is no TLS."""
    model: str = "captioner"
    """The name callers ask for."""
    grace_seconds: Annotated[float, Range(0, _DAY)] = 30.0
    """Time for calls in flight once the server is told to stop."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = parse_flags(Arguments, argv, "serving.local_server")
    return exit_status(lambda: run(arguments))


class _Printable(logging.Formatter):
    """Formats lines without control characters: callers and files choose parts of them."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def run(arguments: Arguments) -> int:
    """Serves until SIGTERM or SIGINT; a second one ends the calls in flight too."""
    check_fields(arguments)
    if not arguments.export_dir.is_dir():
        expected = "a folder that holds version folders"
        raise invalid_value("export_dir", expected, f"{arguments.export_dir}, which does not exist")
    check_port(arguments.host, arguments.port)
    handler = logging.StreamHandler()
    handler.setFormatter(_Printable("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        # Up to 64 MB that were freed stay in each of glibc's arenas, of which threads have many.
        mallopt(_ARENA_MAX, 2)
    # After the flags were checked, as TensorFlow takes seconds to load.
    with loading():
        import tensorflow as tf

        from serving.local_server.server import LocalServer

    tf.get_logger().setLevel(logging.ERROR)  # the session's loader calls itself deprecated
    told = threading.Event()

    def stop(number: int, _) -> None:
        told.set()
        # A call that never ends keeps its thread, and so the interpreter.
        last = threading.Timer(arguments.grace_seconds + _CLOSING_SECONDS, os._exit, [0])
        last.daemon = True
        last.start()
        signal.signal(number, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    server = LocalServer(
        arguments.export_dir,
        model=arguments.model,
        host=arguments.host,
        port=arguments.port,
    )
    print(f"Serving {arguments.model} on {server.address}", flush=True)
    # A signal that arrives just before an endless wait begins would be handled only after it.
    while not told.wait(_ROUND_SECONDS):
        pass
    server.stop(arguments.grace_seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
