"""The command line of the page: `python -m serving.web [--export DIR ...]`."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
import threading
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from digits import hand_over
from sat_tf.inference import published
from sat_tf.util.commands import exit_status, parse_flags
from sat_tf.util.errors import installation, invalid_value
from sat_tf.util.fields import PositiveInt, check_fields
from serving.address import check_port, parse_server
from serving.web import sources

if TYPE_CHECKING:
    from serving.web.captioning import Captioner
    from serving.web.model_process import Source

_PACKAGES = ("starlette", "uvicorn", "python_multipart")
_SECONDS_TO_END = 2  # for answers that are on their way
_CONNECTIONS = 64  # beyond them, a request is told to come again
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HOST = re.compile(r"(?P<name>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?P<port>:[0-9]+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Arguments:
    """Open a page that captions photographs and shows where each word looked."""

    export: tuple[Path, ...] = ()
    """Exports for LiteRT to show side by side: soft, hard and none, say."""
    run_dir: tuple[Path, ...] = ()
    """Runs or published models to show; by default those that ship."""
    server: str | None = None
    """HOST:PORT of a running TF Serving or local server (gRPC) to ask instead."""
    model: tuple[str, ...] = ("captioner",)
    """Names of the models there."""
    host: str = "127.0.0.1"
    """Address of the page; 0.0.0.0 lets other machines in."""
    allow_host: tuple[str, ...] = ()
    """Names (NAME, or NAME:PORT) of a proxy in front, under which browsers ask for the page."""
    port: int = 7860
    """Port of the page; 0 takes a free one."""
    browser: bool = True
    """Open the page in a browser."""
    max_mb: PositiveInt = 20
    """Largest file that is accepted."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = parse_flags(Arguments, argv, "serving.web")
    # Silences gRPC's own notes on failed connections, which the page tells in plain words.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> None:
    """Serves the page until it is stopped."""
    _check(arguments)
    given = list(map(published.locate, (*arguments.export, *arguments.run_dir)))
    drawn = [run for run in given if hand_over.takes(run)]
    runs = [sources.captioner_in(run) for run in given if run not in drawn]
    if not (runs or arguments.server):
        runs = sources.shipped_captioners()
    folders = sources.named(runs)
    with contextlib.ExitStack() as stack:
        if arguments.server is not None:
            models, view = _captioners(_served(arguments), stack), None
        else:
            models = _captioners(folders, stack)
            view = hand_over.view(drawn, stack.callback)
        # While the first model loads.
        import uvicorn

        from serving.web.app import Connection, Page

        page = Page(
            models,
            [view] if view else [],
            kinds={name: sources.kind_of(folder) for name, folder in folders.items()},
            notes=sources.notes_of(runs),
            about=tuple(dict.fromkeys(filter(None, map(published.knows, runs)))),
            max_mb=arguments.max_mb,
            hosts=_hosts(arguments),
            proxies=arguments.allow_host,
        )
        config = uvicorn.Config(
            page.app(),
            host=arguments.host,
            port=arguments.port,
            http=Connection,
            ws="none",
            limit_concurrency=_CONNECTIONS,
            log_level="error",
            timeout_graceful_shutdown=_SECONDS_TO_END,
        )
        _serve(uvicorn.Server(config), arguments)


def _check(arguments: Arguments) -> None:
    """Checks that the page's packages are there and that the arguments go together."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(f"The page needs {', '.join(missing)}: {installation('web')}")
    check_fields(arguments)
    for name in arguments.allow_host:
        if not _HOST.fullmatch(name):
            expected = "names such as captions.example.org or captions.example.org:8443"
            raise invalid_value("allow_host", expected, name)
    if arguments.server is None and arguments.model != Arguments.model:
        expected = "`--server` with it; `--run-dir` takes runs and the names of models that ship"
        raise invalid_value("model", expected, " ".join(arguments.model))
    if arguments.server is not None and (arguments.run_dir or arguments.export):
        expected = "no `--run-dir` and no `--export` with it, as that server has its own models"
        raise invalid_value("server", expected, arguments.server)
    check_port(arguments.host, arguments.port)


def _hosts(arguments: Arguments) -> tuple[str, ...]:
    """Names under which the page is served: this machine's and those allowed, or any."""
    if arguments.host not in _LOOPBACK and not arguments.allow_host:
        return ("*",)
    allowed = (_HOST.fullmatch(name)["name"] for name in arguments.allow_host)
    return (*_LOOPBACK, "[::1]", *allowed)


def _serve(server, arguments: Arguments) -> None:
    sockets = [server.config.bind_socket()]
    sockets[0].listen(server.config.backlog)  # from here on the system takes connections
    host = "localhost" if arguments.host == "0.0.0.0" else arguments.host
    host = f"[{host}]" if ":" in host else host
    address = f"http://{host}:{sockets[0].getsockname()[1]}/"
    print(f"The page: {address}   (Ctrl-C ends it)", flush=True)
    if arguments.browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    server.run(sockets)


def _served(arguments: Arguments) -> dict[str, Source]:
    """Returns the models of a model server, by name."""
    try:
        from serving.client import Connection
    except ImportError as error:
        raise ValueError(
            f"`--server` needs {error.name}, which is not installed: {installation('client')}"
        ) from error
    from serving.web.captioning import served

    host, port = parse_server(arguments.server)
    # The page itself waits for a model that is away, and says so.
    connection = Connection(host, port, wait=False)
    return {name: partial(served, connection, name) for name in arguments.model}


def _captioners(models: Mapping[str, Source], stack: contextlib.ExitStack) -> dict[str, Captioner]:
    """Returns captioners of a process, which ends with `stack`."""
    from serving.web.model_process import ModelProcess

    process = ModelProcess(list(models.values()))
    stack.callback(process.stop)
    process.start()
    return {name: partial(process.ask, source) for name, source in models.items()}


if __name__ == "__main__":
    sys.exit(main())
