"""The command `sat-tf`: runs one of the commands of `training` and `serving` by its name."""

from __future__ import annotations

import difflib
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Annotated, Union

import sat_tf

COMMANDS = {
    "train": ("training.train", "Train a captioner or a digit system."),
    "evaluate": ("training.evaluate", "Score a run, or captions from elsewhere."),
    "caption": ("training.caption", "Caption images and draw where each word looked."),
    "inspect": ("training.inspect", "Check a data set before training on it."),
    "standardize": ("training.standardize", "Standardise an encoder's annotations."),
    "compare": ("training.compare", "Compare evaluated runs, with paired intervals."),
    "average": ("training.average", "Average the weights of runs."),
    "publish": ("training.publish", "Write a run's captioner in small, plain files."),
    "export": ("serving.export", "Export a run as a SavedModel for TF Serving."),
    "serve": ("serving.local_server", "Serve an export on this machine."),
    "demo": ("serving.web", "Open a page that captions photographs, with their maps."),
    "bulk": ("serving.bulk", "Caption many images on Spark."),
    "locate": ("training.locate", "Learn where words are, from captions alone."),
    "distill": ("training.distill", "Save predictions of captioners, to teach another one."),
    "extract": ("training.extract", "Fill a feature store on Spark."),
    "client": ("serving.client", "Caption images by a server."),
    "litert": ("serving.litert", "Caption images by a LiteRT export, without TensorFlow."),
}


COMPLETION = "--tyro-print-completion"
_SHELLS = ("bash", "zsh", "fish", "tcsh")


def help_text() -> str:
    """Returns the list of commands."""
    lines = [f"  {name:<13}{summary}" for name, (_, summary) in COMMANDS.items()]
    usage = (
        "usage: sat-tf COMMAND [OPTIONS] | --version   (sat-tf COMMAND --help lists the options)"
    )
    last = f"sat-tf {COMPLETION} bash   prints shell completion; also for {', '.join(_SHELLS[1:])}"
    return "\n".join([usage, "", *lines, "", last])


def print_completion(shell: str) -> None:
    """Prints the script that completes every command and its flags; see docs/api/commands.rst."""
    import tyro

    if shell not in _SHELLS:
        raise SystemExit(f"Error: expected one of {', '.join(_SHELLS)} after {COMPLETION}.")
    commands = [
        Annotated[
            getattr(_imported(module), "Arguments", _NoFlags),
            tyro.conf.subcommand(name, description=summary),
        ]
        for name, (module, summary) in COMMANDS.items()
    ]
    tyro.cli(Union[tuple(commands)], prog="sat-tf", args=[COMPLETION, shell])  # noqa: UP007


@dataclass(frozen=True)
class _NoFlags:
    """Stands for the flags of `litert`, which does without tyro: its name alone is completed."""


def _imported(module: str) -> ModuleType:
    """Returns the module of a command's `main`: of a package, its `command` or `__main__`."""
    if find_spec(module).submodule_search_locations is not None:
        module += ".command" if find_spec(f"{module}.command") else ".__main__"
    return import_module(module)


def main(argv: list[str] | None = None) -> int:
    """Runs a command with the arguments after its name; returns the exit status."""
    name, *rest = given = (sys.argv[1:] if argv is None else argv) or [""]
    if given[-2:-1] == [COMPLETION]:  # after a command's name too: one script serves all
        print_completion(given[-1])
        return 0
    if name in ("", "-h", "--help"):
        print(help_text())
        return 0 if name else 2
    if name == "--version":
        print(f"sat-tf {sat_tf.__version__}")
        return 0
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        meant = f" Did you mean {close[0]}?" if close else ""
        print(f"Error: there is no command {name!r}.{meant}\n\n{help_text()}", file=sys.stderr)
        return 2
    module, _ = COMMANDS[name]
    sys.argv = [f"sat-tf {name}", *rest]
    try:
        return _imported(module).main(rest)
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] in ("sat_tf", "training", "serving"):
            raise
        print(f'Error: {name} needs {error.name}: pip install "sat-tf[train]"', file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
