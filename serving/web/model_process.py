"""The process beside the page that serves its models: started, watched, started again."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from serving.process import free_ports
from serving.versions import has_version
from serving.web.sources import Source

TERMINATED = 128 + signal.SIGTERM
"""Status of a process that tidied up after SIGTERM, and then ended."""

MOST_TRIES = 3
"""Processes in a row that a signal may end before their models are loaded."""

_ASK_AGAIN = 3.0
"""Seconds between two SIGTERMs: TensorFlow's C code may swallow what the first one raises."""


class ModelProcess:
    """Local servers of several models in one other process, which ends with this one.

    It is started again if a signal ended it, for want of memory for example, but not for ever if
    its models were not loaded by then. A process that ends by itself could not load them: another
    would load TensorFlow and fail likewise.

    Args:
        sources: The models.
        seconds: Time for it to tidy up when it is stopped.

    Attributes:
        ports: Port of each model, in order.
    """

    def __init__(self, sources: Sequence[Source], seconds: float = 10.0) -> None:
        self._seconds = seconds
        self.ports = free_ports(len(sources))
        self._models = [
            {
                "name": source.name,
                "export": str(source.export),
                "run": source.run and str(source.run),
                "port": port,
            }
            for source, port in zip(sources, self.ports, strict=True)
        ]
        self._lock = threading.Lock()
        self._tries = 0  # since models were loaded last
        self._start()

    def state(self) -> str:
        """Says why a model does not answer; starts the process again if a signal ended it."""
        with self._lock:
            status = self._process.poll()
            if status is None and self._is_exporting():
                return "The models are being exported, which takes a minute, once per version."
            if status is None:
                return "The captioner is being loaded; that takes a few seconds."
            if status > 0 and status != TERMINATED:
                return "The captioner cannot be loaded: the terminal says why."
            if self._ready.read():
                self._tries = 0
            if self._tries == MOST_TRIES:
                return (
                    f"The captioner cannot be loaded: the system ended it {self._tries} times, "
                    "perhaps for want of memory. Start the page again when there is more."
                )
            self._ready.close()
            self._start()
            return "The model server stopped and is being started again."

    def stop(self) -> None:
        """Ends the process, which removes an export that it has not finished."""
        end = time.monotonic() + self._seconds
        with self._lock:
            while (left := end - time.monotonic()) > 0 and self._process.poll() is None:
                self._process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(min(left, _ASK_AGAIN))
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()
            self._ready.close()

    def _is_exporting(self) -> bool:
        return any(not has_version(Path(model["export"])) for model in self._models)

    def _start(self) -> None:
        self._tries += 1
        command = [sys.executable, "-m", "serving.web.model_process", json.dumps(self._models)]
        reader, writer = os.pipe()  # takes a byte once the models are loaded
        os.set_blocking(reader, False)
        self._ready = io.FileIO(reader)
        try:
            # It ends when its standard input does, however this process ends.
            self._process = subprocess.Popen(
                [*command, str(writer)], stdin=subprocess.PIPE, pass_fds=[writer]
            )
        finally:
            os.close(writer)
