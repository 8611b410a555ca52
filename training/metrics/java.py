"""Java programs behind the metrics: a line out per line in, from one run or one that stays."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Sequence
from typing import IO


class JavaError(ChildProcessError):
    """A Java program did not start, stopped early, or did not answer in time."""


# A pipe holds 64 KiB. Were more answers asked for at once, program and asker could wait for each
# other, both with a full pipe.
_LINES_AT_ONCE = 100

_END_OF_STDERR = 300  # characters in an error


def find_java() -> str | None:
    """Returns the path of the `java` program, or None."""
    return shutil.which("java")


def ask_java(command: Sequence[str], lines: Sequence[str], seconds: float, name: str) -> list[str]:
    """Runs a program that answers each line with one line; returns the answers.

    Raises:
        JavaError: It did not start, failed, took too long, or answered another number of lines.
    """
    text = "".join(f"{line}\n" for line in lines).encode(errors="replace")
    try:
        done = subprocess.run(command, input=text, capture_output=True, timeout=seconds, check=True)
    except subprocess.TimeoutExpired as error:
        raise JavaError(f"{name} did not run (no answer within {seconds:g} s).") from error
    except (OSError, subprocess.SubprocessError) as error:
        told = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
        raise JavaError(f"{name} did not run ({told[-_END_OF_STDERR:] or error}).") from error
    *answers, rest = done.stdout.decode(errors="replace").split("\n")
    if len(answers) != len(lines) or rest:
        raise JavaError(f"{name} answered {len(answers)} lines to {len(lines)}.")
    return answers


class JavaProgram:
    """A Java program that is loaded once and answers lines for as long as this object lives.

    Threads may share it.

    Args:
        command: The command; it has to answer each line with one line.
        name: Its name, for errors.

    Raises:
        JavaError: It did not start.
    """

    def __init__(self, command: Sequence[str], name: str) -> None:
        self._name, self._lock = name, threading.Lock()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115, open as long as the program runs
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._said}
        try:
            # In a session of its own, Ctrl-C does not reach it: the step under way still needs it.
            self._process = subprocess.Popen(command, **pipes, start_new_session=True)
        except OSError as error:
            raise JavaError(f"{name} did not run ({error}).") from error
        # The end of its input ends the program.
        weakref.finalize(self, _close, self._process.stdin)

    def ask(self, lines: Sequence[str]) -> list[str]:
        """Sends lines of at most some hundred characters; returns the answers.

        Raises:
            JavaError: The program has stopped.
        """
        answers: list[str] = []
        with self._lock:
            for first in range(0, len(lines), _LINES_AT_ONCE):
                answers += self._ask_part(lines[first : first + _LINES_AT_ONCE])
        return answers

    def _ask_part(self, lines: Sequence[str]) -> list[str]:
        try:
            self._process.stdin.write("".join(f"{line}\n" for line in lines).encode())
            self._process.stdin.flush()
        except OSError as error:
            raise self._stopped() from error
        answers = [self._process.stdout.readline().decode(errors="replace") for _ in lines]
        if not all(answer.endswith("\n") for answer in answers):
            raise self._stopped()
        return [answer.rstrip("\n") for answer in answers]

    def _stopped(self) -> JavaError:
        status = self._process.wait()
        self._said.seek(0)
        told = self._said.read().decode(errors="replace").strip()[-_END_OF_STDERR:]
        return JavaError(f"{self._name} stopped ({told or f'exit status {status}'}).")


def _close(pipe: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # the program has stopped by itself
        pipe.close()
