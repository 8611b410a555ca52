"""Serves models until standard input ends: `python -m serving.web.model_process MODELS PIPE`.

`MODELS` is a JSON list of `{"name", "export", "run", "port"}`; a run is exported first if `export`
has no version. `PIPE` is the number of an open file that takes a byte once all are loaded. The page
starts this process, and ends it by SIGTERM: see `serving.web.model_process`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from sat_tf.commands import exit_status, loading
from serving.process import return_freed_memory
from serving.versions import has_version
from serving.web.model_process import TERMINATED
from serving.web.sources import exporting_to, remove_earlier


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
    import sat_tf.runs
    from serving.digit_export import export_digits
    from serving.export import export

    print(f"Exporting {run_dir}, once, to {folder} ...", flush=True)
    model = sat_tf.load(run_dir)
    if isinstance(model, sat_tf.runs.DigitReader):
        export_digits(model, folder)
    else:
        export(model, folder)
    remove_earlier(folder, run_dir)


if __name__ == "__main__":
    sys.exit(main())
