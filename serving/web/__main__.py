"""The page on this machine: `python -m serving.web [--run-dir RUN ...]`.

It listens on the loopback interface alone and is not for the open network: for others, use the
static page (`serving.export_web`) or TF Serving.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import webbrowser
from dataclasses import dataclass
from pathlib import Path

from sat_tf.inference import published
from sat_tf.util.commands import exit_status, parse_flags
from sat_tf.util.errors import installation
from sat_tf.util.fields import PositiveInt, check_fields
from serving.local_server import check_port

_HOST = "127.0.0.1"
_PACKAGES = ("starlette", "uvicorn", "python_multipart")


@dataclass(frozen=True)
class Arguments:
    """Open a page that captions photographs and shows where each word looked."""

    run_dir: tuple[Path, ...] = ()
    """Runs or published captioners to show; by default the pretrained ones."""
    digits: tuple[Path, ...] = ()
    """Published digit models of the second view; by default the pretrained ones."""
    port: int = 7860
    """Port of the page; 0 takes a free one."""
    browser: bool = True
    """Open the page in a browser."""
    max_mb: PositiveInt = 20
    """Largest file that is accepted."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = parse_flags(Arguments, argv, "serving.web")
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> None:
    """Serves the page until it is stopped."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(f"The page needs {', '.join(missing)}: {installation('web')}")
    check_fields(arguments)
    check_port(_HOST, arguments.port)
    import uvicorn

    from digits import page as digits_page
    from serving.web.app import make_app
    from serving.web.captions import Captioner, facts_of, named, samples_of

    runs = named(list(map(published.locate, arguments.run_dir or published.names())))
    captioners = {name: Captioner(run) for name, run in runs.items()}
    samples, files = samples_of(runs)
    facts = facts_of(runs) | {"samples": samples}
    app = make_app(captioners, facts, files, digits_page.models(arguments.digits), arguments.max_mb)
    config = uvicorn.Config(app, _HOST, arguments.port, ws="none", log_level="error")
    server = uvicorn.Server(config)
    sockets = [config.bind_socket()]
    sockets[0].listen(config.backlog)  # from here on the system takes connections
    address = f"http://{_HOST}:{sockets[0].getsockname()[1]}/"
    print(f"The page: {address}   (Ctrl-C ends it)", flush=True)
    if arguments.browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    server.run(sockets)


if __name__ == "__main__":
    sys.exit(main())
