"""Start and end of every command: quick imports; a status and a line, no traceback."""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import json
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from sat_tf.errors import invalid_value
from sat_tf.files import finite

_BAD_INPUT = 2
_INTERRUPTED = 128 + signal.SIGINT


def program(module: str) -> str:
    """Returns the command as it was called, for `--help`: `sat-tf NAME` or `python -m MODULE`."""
    called = sys.argv[0]
    return called if called.startswith("sat-tf ") else f"python -m {module}"


def command_line(module: str, *arguments: object) -> str:
    """Returns the command `python -m MODULE ARGUMENTS` as it can be typed into a shell."""
    return shlex.join(["python", "-m", module, *map(str, arguments)])


def parse_flags(arguments: type, argv: list[str] | None, module: str, **options: Any) -> Any:
    """Parses the flags of a command; its `--help` shows the docstrings of their fields.

    Args:
        arguments: A dataclass with a field for each flag.
        argv: The command line; None for that of the process.
        module: The command's module, as for `program`.
        **options: Further options of `tyro.cli`.

    Returns:
        The arguments.

    Raises:
        SystemExit: A flag or its type is wrong (status 2), or help was asked for.
    """
    import tyro

    parse = functools.partial(tyro.cli, arguments, args=argv, prog=program(module), **options)
    try:
        from tyro import _docstrings

        written = _docstrings.parse_docstring_from_object
    except (ImportError, AttributeError):  # private names: without them help has more line breaks
        return parse()
    # tyro would keep the line breaks of docstrings whose lines are indented.
    _docstrings.parse_docstring_from_object = lambda owner: {
        field: " ".join(text.split()) for field, text in written(owner).items()
    }
    try:
        return parse()
    finally:
        _docstrings.parse_docstring_from_object = written


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
    """Imports TensorFlow and Keras quickly and quietly; does nothing if TensorFlow is loaded.

    They make a million objects that live as long as the process: collecting garbage among them
    costs a tenth of the start-up time.
    """
    if "tensorflow" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        with native_log_kept():
            yield
    finally:
        gc.freeze()
        gc.enable()


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


def check_folder(flag: str, folder: Path) -> None:
    """Makes a folder of results and tries to write in it.

    Raises:
        ValueError: It cannot be made or written in; the message names the flag.
    """
    _try("a folder that can be written in", flag, folder, folder)


def check_file(flag: str, path: Path) -> None:
    """Makes the folder of a file of results and tries to write in it; the file is not touched.

    Raises:
        ValueError: It cannot be written; the message names the flag.
    """
    _try("a file that can be written", flag, path, path.parent)


def _try(expected: str, flag: str, path: Path, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        if path != folder and path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except OSError as error:
        raise invalid_value(flag, expected, f"{path} ({error.strerror})") from error
