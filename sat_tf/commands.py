"""Start and end of every command: quick imports; a status and a line, no traceback."""

from __future__ import annotations

import contextlib
import gc
import json
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from sat_tf.files import finite

_BAD_INPUT = 2
_INTERRUPTED = 128 + signal.SIGINT


def program(module: str) -> str:
    """Returns the command as it was called, for `--help`: `sat-tf NAME` or `python -m MODULE`."""
    called = sys.argv[0]
    return called if called.startswith("sat-tf ") else f"python -m {module}"


def exit_status(
    command: Callable[[], int | None],
    expected: tuple[type[Exception], ...] = (ValueError, OSError),
) -> int:
    """Runs a command; an expected error becomes one line on standard error.

    Characters that standard output cannot encode are printed as escapes.

    Args:
        command: Returns its status; None is 0.
        expected: Errors that the user can do something about.

    Returns:
        The command's status; 2 after an expected error; 130 after Ctrl-C, or the `status` of a
        KeyboardInterrupt that has one.
    """
    # File names need not be UTF-8, and a terminal may lack letters; standard error escapes already.
    with contextlib.suppress(AttributeError):  # an output that was replaced may have no encoding
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return command() or 0
    except KeyboardInterrupt as stop:
        print(str(stop) or "Stopped.", file=sys.stderr)
        return getattr(stop, "status", _INTERRUPTED)
    except expected as error:
        print(f"Error: {error}", file=sys.stderr)
        return _BAD_INPUT


def json_line(value: Any) -> str:
    """Formats a value as JSON that stays JSON on standard output, whatever its encoding.

    The escapes of `exit_status` are Python's, not JSON's. Numbers that are not finite are null.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    ascii_only = encoding.lower() not in ("utf-8", "utf8")
    return json.dumps(finite(value), ensure_ascii=ascii_only, allow_nan=False)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Suspends the garbage collector while TensorFlow and Keras are imported.

    They make a million objects that live as long as the process; collecting among them costs a
    tenth of the start-up time. Does nothing if TensorFlow is already loaded.
    """
    if "tensorflow" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
