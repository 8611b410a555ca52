"""The models of the page, in a process beside it, without TensorFlow where there are graphs.

The page starts `python -m serving.web.model_process PIPE`, asks it through the pipe, and starts it
again if it ended: `ModelProcess`. The process alone decodes what was uploaded. It loads the first
model at once and the others when they are asked; it ends when the page's end of the pipe does,
however the page ends. A captioner without graphs is loaded with TensorFlow, and its first caption
has them made.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import sat_tf
from sat_tf.inference.captioning import TrainedCaptioner
from sat_tf.inference.load import graphs_missing
from sat_tf.util.commands import printable
from serving.web.captioning import UploadError, read_upload, viewer_data

MOST_TRIES = 3
"""Processes that one question may end, for want of memory for example."""

# Of glibc, which otherwise gives each thread arenas that keep as much as 64 MB of freed images.
_MEMORY = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(32 * 2**20),
}

Source = Path | Callable[[], Callable[[bytes], Any]]
"""A run, a published captioner or an export for LiteRT; or what loads another model.

That can be pickled, and returns a function of an upload, which raises an `UploadError`.
"""


class ModelProcess:
    """Models in one other process, which ends with this one; they answer one after another.

    Args:
        sources: The models.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = list(sources)
        self._turn = asyncio.Lock()  # first come, first served
        self._lock = threading.Lock()  # a question whose asker has gone is still answered
        self._process: subprocess.Popen | None = None
        self._pipe: Connection | None = None
        self._stopped = False

    def start(self) -> None:
        """Starts the process if it does not run."""
        with self._lock:
            self._start()

    def stop(self) -> None:
        """Ends the process, also while it answers, for good."""
        self._stopped = True
        self._end()

    async def ask(self, source: Source, content: bytes, sentence: str | None = None) -> Any:
        """Returns a model's answer about an image file, once the questions before are answered.

        A `sentence` about the image is explained, the captioner's own if it is empty; without one,
        the image is captioned.

        Returns:
            Of a captioner `viewer_data`, with `unknown` words if it is an explanation.

        Raises:
            UploadError: There is no answer.
        """
        question = (self._sources.index(source), content, sentence)
        async with self._turn:
            return await asyncio.to_thread(self._ask, question)

    def _ask(self, question: tuple[int, bytes, str | None]) -> Any:
        with self._lock:
            for _ in range(MOST_TRIES):
                self._start()
                try:
                    self._pipe.send(question)
                    answer = self._pipe.recv()
                except (EOFError, OSError) as error:  # the process ended
                    if self._stopped:
                        raise UploadError("The page has been ended.", 500) from error
                    self._end()
                else:
                    if isinstance(answer, UploadError):
                        raise answer
                    return answer
        raise UploadError(
            f"The captioner was ended by the system {MOST_TRIES} times, perhaps for want of "
            "memory. Try again when there is more.",
            500,
        )

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        if self._pipe is not None:
            self._pipe.close()
        self._pipe, theirs = multiprocessing.Pipe()
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=os.environ | _MEMORY
        )
        theirs.close()
        with contextlib.suppress(OSError):  # it has ended: whoever asks finds out
            self._pipe.send(self._sources)


def main() -> int:
    """Answers until the page ends; returns the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches this process too
    serve(Connection(int(sys.argv[1])))
    return 0


def serve(pipe: Connection) -> None:
    """Answers questions from a pipe, on which the models come first, until its other end closes.

    It also ends, and the page starts another, when all captioners that TensorFlow was loaded for
    have their graphs.
    """
    models: dict[int, Callable[[bytes], Any]] = {}
    heavy: list[Path] = []  # captioners that have no graphs yet

    def model(index: int) -> Callable[[bytes], Any]:
        if index not in models:
            models[index] = load(sources[index])
        return models[index]

    def load(source: Source) -> Callable[[bytes], Any]:
        if not isinstance(source, Path):
            return source()
        if graphs_missing(source):
            heavy.append(source)
        return partial(_caption, sat_tf.load(source))

    def answer(index: int, content: bytes, sentence: str | None) -> Any:
        try:
            asked = model(index)
            if sentence is None:
                return asked(content)
            if not isinstance(sources[index], Path):
                raise UploadError("A model server captions, and explains no sentence.", 501)
            return asked(content, sentence)
        except UploadError as error:
            return error
        except Exception as error:  # of one model: the others go on
            print(printable(f"{sources[index]}: {error}"), file=sys.stderr, flush=True)
            return UploadError(f"It cannot be used: {error}", 500)

    with contextlib.suppress(EOFError, OSError):
        sources = pipe.recv()
        with contextlib.suppress(Exception):  # told to whoever asks
            model(0)
        while not heavy or any(map(graphs_missing, heavy)):
            pipe.send(answer(*pipe.recv()))


def _caption(
    captioner: TrainedCaptioner, content: bytes, sentence: str | None = None
) -> dict[str, Any]:
    upload, config, facts = read_upload(content), captioner.config, {}
    try:
        if sentence is None:
            found = captioner.beam(content)
        else:
            found = [captioner.explain(content, sentence or None)]
            facts = {"unknown": list(found[0].unknown)}
    except ValueError as error:
        raise UploadError(str(error), 400) from error
    return viewer_data(upload, found, config.attention.kind, config.encoder.resize) | facts


if __name__ == "__main__":
    sys.exit(main())
