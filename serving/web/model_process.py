"""The models of the page, served by a process beside it.

The page starts `python -m serving.web.model_process MODELS PIPE`, watches it, starts it again and
ends it by SIGTERM: `ModelProcess`. `MODELS` is a JSON list of `{"name", "export", "run", "port"}`;
a run is exported first if `export` has no version. `PIPE` is the number of an open file that takes
a byte once all are loaded. The process ends when its standard input does, however the page ends.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from sat_tf.commands import exit_status, loading
from serving.process import free_ports, return_freed_memory
from serving.versions import has_version
from serving.web.sources import Source, exporting_to, remove_earlier

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
        """Returns why a model does not answer; starts the process again if a signal ended it."""
        with self._lock:
            status = self._process.poll()
            if status is None and any(not has_version(Path(m["export"])) for m in self._models):
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

    def _start(self) -> None:
        self._tries += 1
        command = [sys.executable, "-m", "serving.web.model_process", json.dumps(self._models)]
        reader, writer = os.pipe()  # takes a byte once the models are loaded
        os.set_blocking(reader, False)
        self._ready = io.FileIO(reader)
        try:
            self._process = subprocess.Popen(
                [*command, str(writer)], stdin=subprocess.PIPE, pass_fds=[writer]
            )
        finally:
            os.close(writer)


def main() -> int:
    """Serves; returns the exit status."""
    # Ctrl-C reaches this process too: the page ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    try:
        return exit_status(lambda: run(json.loads(sys.argv[1]), int(sys.argv[2])))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # all is tidied up


def _stop(_number: int, _) -> None:
    """Ends the process by an exception, so that an unfinished export is removed."""
    raise SystemExit(TERMINATED)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ignores further signals once the end has begun, so that what follows is not interrupted.

    Not in `_stop`: TensorFlow may swallow its exception, and the page then asks again.
    """
    try:
        yield
    except SystemExit:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise


def run(models: list[dict], pipe: int) -> None:
    """Exports what has to be, serves all, says so, waits for the end of standard input."""
    return_freed_memory()
    with loading():
        import tensorflow as tf

        from serving.client.captions import EVERY_BEAM
        from serving.local_server.server import LocalServer

    tf.get_logger().setLevel(logging.ERROR)  # the session's loader calls itself deprecated
    with contextlib.ExitStack() as servers, undisturbed():
        for model in models:
            folder = Path(model["export"])
            if not has_version(folder):
                with exporting_to(folder), undisturbed():
                    if not has_version(folder):  # another page may have made it meanwhile
                        _export(Path(model["run"]), folder)
            # The page calls no other signature, and each costs seconds to compile; rewriting its
            # graphs takes a captioner that ships 2 of its 7 seconds, and makes no answer faster.
            server = LocalServer(
                folder,
                model=model["name"],
                port=model["port"],
                warm_up=(EVERY_BEAM,),
                rewrite=False,
            )
            servers.callback(server.stop, 1.0)
        print(f"Ready: {', '.join(model['name'] for model in models)}.", flush=True)
        with contextlib.suppress(BrokenPipeError):  # the page has ended
            os.write(pipe, b"1")
        sys.stdin.buffer.read()


def _export(run_dir: Path, folder: Path) -> None:
    from sat_tf import digits
    from sat_tf.runs import load_captioner
    from serving.digits import export as export_digits
    from serving.export import export

    print(f"Exporting {run_dir}, once, to {folder} ...", flush=True)
    if digits.system_of(run_dir) is None:
        export(load_captioner(run_dir), folder)
    else:
        export_digits(run_dir, folder)
    remove_earlier(folder, run_dir)


if __name__ == "__main__":
    sys.exit(main())
