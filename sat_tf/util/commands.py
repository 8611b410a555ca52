"""Start and end of every command: its flags, its status and one line for an error."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import json
import os
import re
import shlex
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sat_tf.util.errors import installation, invalid_value
from sat_tf.util.files import finite
from sat_tf.util.removed import removed_flag

if TYPE_CHECKING:
    from tqdm import tqdm

COMMANDS = {
    "train": ("training.train", "Train a captioner."),
    "evaluate": ("training.evaluate", "Score a run, or captions from elsewhere."),
    "caption": ("sat_tf.inference.caption", "Caption images and draw where each word looked."),
    "inspect": ("training.inspect", "Check a data set before training on it."),
    "standardize": ("training.standardize", "Standardise an encoder's annotations."),
    "compare": ("training.compare", "Compare evaluated runs, with paired intervals."),
    "average": ("training.average", "Average the weights of runs."),
    "publish": ("training.publish", "Write a run's captioner in small, plain files."),
    "export-saved-model": ("serving.export_saved_model", "Export a captioner for TF Serving."),
    "export-litert": ("serving.export_litert", "Export a captioner as LiteRT graphs."),
    "export-web": ("serving.export_web", "Export captioners as a static page."),
    "serve": ("serving.local_server", "Serve an export on this machine."),
    "demo": ("serving.web", "Open a page that captions photographs, with their maps."),
    "bulk": ("serving.bulk", "Caption many images on Spark."),
    "distill": ("training.distill", "Save predictions of captioners, to teach another one."),
    "client": ("serving.client", "Caption images by a server."),
}
"""Name of each command of `sat-tf` -> its module and a sentence."""

# With those that turn the direction of writing around.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_TRAINING = ("tensorflow", "keras", "h5py", "grpc")  # in `.[train]`, not in the light installation
_BAD_INPUT = 2
_INTERRUPTED = 128 + signal.SIGINT
_UNREAD = 128 + signal.SIGPIPE


def program(module: str) -> str:
    """Returns the command as it was called, for `--help`: `sat-tf NAME` or `python -m MODULE`."""
    called = sys.argv[0]
    return called if called.startswith("sat-tf ") else f"python -m {module}"


def command_line(module: str, *arguments: object) -> str:
    """Returns a command as it can be typed into a shell: by `sat-tf` if that was typed before."""
    words = ["python", "-m", module]
    name = next((name for name, (home, _) in COMMANDS.items() if home == module), None)
    if name and sys.argv[0].startswith("sat-tf "):
        words = ["sat-tf", name]
    return shlex.join([*words, *map(str, arguments)])


def parse_flags(arguments: type, argv: Sequence[str] | None, module: str, **options: Any) -> Any:
    """Parses the flags of a command; its `--help` shows the docstrings of their fields.

    Args:
        arguments: A dataclass with a field for each flag.
        argv: The command line; None for that of the process.
        module: The command's module, as for `program`.
        **options: Further options of `tyro.cli`.

    Raises:
        SystemExit: A flag or its type is wrong or was removed (status 2), or help was asked for.
    """
    import tyro

    argv = sys.argv[1:] if argv is None else argv
    check_removed(argv, module)
    return tyro.cli(arguments, args=argv, prog=program(module), **options)


def check_removed(argv: Sequence[str], module: str) -> None:
    """Ends a command that was given a flag of an earlier version, with what to do instead.

    Raises:
        SystemExit: It was (status 2).
    """
    if gone := removed_flag(argv, module):
        print(f"Error: {printable(gone)}", file=sys.stderr)
        raise SystemExit(_BAD_INPUT)


def printable(text: object) -> str:
    """Returns a text with control characters as escapes: what a terminal would act on.

    They may come from anywhere: a caption, a server, a file's name. Line breaks and tabs stay.
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def text_table(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> str:
    """Pads the cells of each column to its widest cell, with two spaces between columns.

    Args:
        rows: Equally many cells in each, headings included.
        left: Indices of the columns that are aligned left; the others are aligned right.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    padded = []
    for index, column in enumerate(zip(*rows, strict=True)):
        width = max(map(len, column))
        padded.append([c.ljust(width) if index in left else c.rjust(width) for c in column])
    return "\n".join("  ".join(row).rstrip() for row in zip(*padded, strict=True))


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun, such as "1 epoch" or "2 epochs"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def exit_status(
    command: Callable[[], int | None],
    expected: type[Exception] | tuple[type[Exception], ...] = (ValueError, OSError),
) -> int:
    """Runs a command; an expected error becomes one line on standard error.

    Characters that standard output cannot encode are printed as escapes.

    Args:
        command: Returns its status; None is 0.
        expected: Errors that the user can do something about.

    Returns:
        The command's status; 2 after an expected error; 130 after Ctrl-C, or the `status` of a
        KeyboardInterrupt that has one; 141 if a pipe is read no longer, as by `head`.
    """
    # File names need not be UTF-8, and a terminal may lack letters; standard error escapes already.
    with contextlib.suppress(AttributeError):  # an output that was replaced may have no encoding
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = command() or 0
        sys.stdout.flush()
        return status
    except KeyboardInterrupt as stop:
        print(str(stop) or "Stopped.", file=sys.stderr)
        return getattr(stop, "status", _INTERRUPTED)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - Python flushes it at its end
        return _UNREAD
    except ModuleNotFoundError as error:  # an installation for captions alone
        if (error.name or "").partition(".")[0] not in _TRAINING:
            raise
        print(f"Error: this needs {error.name}: {installation('train')}", file=sys.stderr)
        return _BAD_INPUT
    except expected as error:
        print(f"Error: {printable(error)}", file=sys.stderr)
        return _BAD_INPUT


def run_process(main: Callable[[], int]) -> None:
    """Ends the process with the status of a command, as `sys.exit(main())` does, but always.

    Python's own end waits for TensorFlow's threads, which wait for Python if one of them is about
    to call a reader of ours. A notebook (`%run -m training.train`) continues after the command.
    """
    if hasattr(builtins, "__IPYTHON__"):
        sys.exit(main())
    try:
        status = main()
    except Exception:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()  # as `multiprocessing` ends its processes
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def json_line(value: Any) -> str:
    """Formats a value as JSON in ASCII, for any terminal; numbers that are not finite are null."""
    return json.dumps(finite(value), allow_nan=False)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Imports TensorFlow and Keras quickly; does nothing if TensorFlow is loaded.

    They make a million objects that live as long as the process: collecting garbage among them
    costs a tenth of the start-up time.
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


def progress_bar(total: int, title: str, unit: str, enabled: bool = True, done: int = 0) -> tqdm:
    """Makes a bar on standard error; call its `update(count)`, and `close()` or use `with`.

    A log is written to every half minute. Items that were `done` before do not count for its speed.
    """
    from tqdm import tqdm

    seconds = 0.1 if sys.stderr.isatty() else 30.0
    given = {"unit": f" {unit}", "disable": not enabled, "initial": done, "mininterval": seconds}
    return tqdm(total=total, desc=title, dynamic_ncols=True, **given)


def check_folder(flag: str, folder: Path) -> None:
    """Makes a folder of results and tries to write in it.

    Raises:
        ValueError: It cannot be made or written in; the message names the flag.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        expected = "a folder that can be written in"
        raise invalid_value(flag, expected, f"{folder} ({error.strerror})") from error


def check_file(flag: str, path: Path) -> None:
    """Makes the folder of a file of results and tries to write in it; see `check_folder`."""
    if path.is_dir():
        raise invalid_value(flag, "a file that can be written", f"{path}, which is a folder")
    check_folder(flag, path.parent)
