"""Imports of TensorFlow without its start-up messages.

TensorFlow writes them from C++ to file descriptor 2, some before it reads `TF_CPP_MIN_LOG_LEVEL`.
`SAT_TF_VERBOSE=1`, or a level below 2 (errors) in the environment, shows everything.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import os
import re
import signal
import sys
from collections.abc import Iterator

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_VERBOSE = "SAT_TF_VERBOSE"
# A line of absl: severity, date, time, thread, file. Fatal lines (F) and unknown errors pass.
_CHATTER = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog\(\)"
    rb"|To enable the following instructions: .* rebuild TensorFlow"
    rb"|[IW]\d{4} \d\d:\d\d:\S+ +\d+ \S+\.cc:\d+\] "
    rb"|E\d{4} \d\d:\d\d:\S+ +\d+ (cuda_\w+|computation_placer)\.cc:\d+\] "
)


def quiet_tensorflow() -> None:
    """Makes the first import of TensorFlow quiet, wherever it happens, and its later log too."""
    verbose = os.environ.get(_VERBOSE)
    level = os.environ.get(_LEVEL, "3")  # only fatal messages
    asked = level in ("0", "1") if verbose is None else verbose not in ("", "0")
    if asked or "tensorflow" in sys.modules:
        return
    os.environ[_LEVEL] = level
    os.environ[_VERBOSE] = "0"  # a process started by this one takes that level for ours
    sys.meta_path.insert(0, _QuietFinder())


class _QuietFinder(importlib.abc.MetaPathFinder):
    """Finds TensorFlow once, and filters standard error while it is imported."""

    def find_spec(self, name, path, target=None):
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def quietly(module):
                with without_chatter():
                    execute(module)

            spec.loader.exec_module = quietly
        return spec


@contextlib.contextmanager
def without_chatter() -> Iterator[None]:
    """Filters what is written to file descriptor 2; all but the start-up messages passes.

    The filter is a process, so it passes on the last words of this one, should it crash.
    """
    sys.stderr.flush()
    try:
        original = os.dup(2)
        reading, writing = os.pipe()
        child = os.fork()
    except OSError:  # no standard error, or no room for a process: then unfiltered
        yield
        return
    if child == 0:
        _filter_forever(reading, original, writing)
    os.close(reading)
    os.dup2(writing, 2)
    os.close(writing)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(original, 2)
        os.close(original)
        os.waitpid(child, 0)


def _filter_forever(reading: int, original: int, writing: int) -> None:
    """Copies lines until the last writer is gone, then ends this process."""
    try:
        os.close(writing)
        os.dup2(original, 2)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        with open(reading, "rb") as lines:
            for line in lines:
                if not _CHATTER.match(line):
                    os.write(2, line)
    finally:
        os._exit(0)
