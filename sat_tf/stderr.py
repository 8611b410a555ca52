"""Standard error: libraries in C++ are held back while they load, long work shows its progress."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm

_LINE = "{desc}: {n_fmt}/{total_fmt}{unit}, {rate_noinv_fmt}, {remaining} left{postfix}"
_BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"


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


class _Lines:
    """Writes each state of a bar as a line of its own, for files and pipes; no count twice."""

    _count = ""

    def write(self, text: str) -> None:
        count = text.strip().partition(",")[0]
        if count not in ("", self._count):
            sys.stderr.write(text.strip() + "\n")
        self._count = count or self._count

    def flush(self) -> None:
        sys.stderr.flush()


def progress_bar(total: int, title: str, unit: str, enabled: bool = True, done: int = 0) -> tqdm:
    """Makes a bar on standard error; call its `update(count)`, and `close()` or use `with`.

    Items that were `done` before do not count for its speed.
    """
    from tqdm import tqdm

    options: dict[str, Any] = {
        "total": total,
        "desc": title,
        "unit": f" {unit}",
        "disable": not enabled,
        "initial": done,
    }
    if sys.stderr.isatty():
        return tqdm(**options, file=sys.stderr, dynamic_ncols=True, bar_format=_BAR)
    # The tiny delay leaves out the line before the first item.
    options |= {"bar_format": _LINE, "mininterval": 30.0, "miniters": 1, "delay": 1e-9}
    return tqdm(**options, file=_Lines())
