"""How every command begins, quickly, and ends: a status, and a line in place of a traceback."""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
from collections.abc import Callable, Iterator

_BAD_INPUT = 2
_INTERRUPTED = 128 + signal.SIGINT


def exit_status(
    command: Callable[[], int | None],
    expected: tuple[type[Exception], ...] = (ValueError, OSError),
) -> int:
    """Run a command; what stops it is told in a line.

    Args:
        command: Returns its status; None is 0.
        expected: The errors that the user can do something about.

    Returns:
        The command's status; 2 after an expected error; 130 after Ctrl-C, or the `status` of a
        KeyboardInterrupt that has one.
    """
    try:
        return command() or 0
    except KeyboardInterrupt as stop:
        print(str(stop) or "Stopped.", file=sys.stderr)
        return getattr(stop, "status", _INTERRUPTED)
    except expected as error:
        print(f"Error: {error}", file=sys.stderr)
        return _BAD_INPUT


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """For the imports of TensorFlow and Keras: the garbage collector waits, then passes over them.

    They make a million objects that live as long as the process. Otherwise the collector looks
    through those again and again, while they are made and ever after: a tenth of a start. Nothing
    happens where TensorFlow is loaded already.
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
