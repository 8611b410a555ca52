"""Standard error of libraries in C++: held back while they load, or discarded."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import IO


@contextlib.contextmanager
def native_log_kept() -> Iterator[None]:
    """Holds standard error back, and shows it if an import fails.

    TensorFlow's libraries log their first lines before they read `TF_CPP_MIN_LOG_LEVEL`.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL") != "3":
        yield
        return
    with tempfile.TemporaryFile() as log:
        try:
            with _stderr_into(log):
                yield
        except BaseException:
            log.seek(0)
            with contextlib.suppress(OSError):  # there is no standard error
                os.write(2, log.read())
            raise


@contextlib.contextmanager
def without_stderr() -> Iterator[None]:
    """Discards what libraries in C++ write to standard error."""
    with open(os.devnull, "wb") as null, _stderr_into(null):
        yield


@contextlib.contextmanager
def _stderr_into(file: IO[bytes]) -> Iterator[None]:
    """Sends to a file what this process, its libraries included, writes to standard error."""
    try:
        terminal = os.dup(2)
    except OSError:  # there is no standard error
        yield
        return
    sys.stderr.flush()
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
