"""The command `sat-tf`: runs one of the commands of `training` and `serving` by its name."""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Annotated, Union

import sat_tf
from sat_tf.commands import COMMANDS, exit_status, run_process
from sat_tf.errors import installation
from sat_tf.trained import published

COMPLETION = "--tyro-print-completion"
_SHELLS = ("bash", "zsh", "fish")


IN_WHEEL = Path(sat_tf.__file__).with_name("_commands")
"""Folder of `training` and `serving` in a wheel, which installs one name; see `setup.py`."""


def help_text() -> str:
    """Returns the list of commands."""
    lines = [f"  {name:<13}{summary}" for name, (_, summary) in COMMANDS.items()]
    usage = (
        "usage: sat-tf COMMAND [OPTIONS] | --version   (sat-tf COMMAND --help lists the options)"
    )
    last = f"sat-tf {COMPLETION} bash   prints shell completion; also for {', '.join(_SHELLS[1:])}"
    return "\n".join([usage, "", *lines, "", last])


def print_completion(shell: str) -> None:
    """Prints the script that completes every command and its flags; see docs/api/commands.rst.

    It offers recipes, and the runs that are below `runs/` when the Tab key is pressed.
    """
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
    with contextlib.redirect_stdout(io.StringIO()) as script, contextlib.suppress(SystemExit):
        tyro.cli(Union[tuple(commands)], prog="sat-tf", args=[COMPLETION, shell])  # noqa: UP007
    names = sorted(_imported("training.train").all_recipes()), published.names()
    # In tyro's scripts a Python program completes, from a table that stands before its imports.
    offers = "\n\nimport sys\n" + _OFFERS.format(*names)
    print(script.getvalue().replace("\n\nimport sys\n", offers, 1), end="")


_OFFERS = """
import glob, os
typed = sys.argv[1:-1][int(sys.argv[-1]):][:1]
runs = [os.path.dirname(path) for path in sorted(glob.glob("runs/*/config.json"))] + {1}
runs = [run for run in runs if run.startswith(*typed or [""])]
for name, command in COMPLETION_SPEC["subcommands"].items():
    if name in ("average", "compare", "distill", "publish"):
        command["subcommands"].update(dict.fromkeys(runs, command))
    for option in command["options"]:
        if "--recipe" in option["flags"]:
            option.update(type="choice", choices={0})
        if runs and {{"--run-dir", "--init-from"}} & {{*option["flags"]}}:
            option.update(type="choice", choices=runs)
"""
"""Code in the script: choices of recipes; of runs, unless what was typed leads elsewhere."""


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
    return exit_status(lambda: _run(sys.argv[1:] if argv is None else argv), BrokenPipeError)


def _run(argv: list[str]) -> int:
    if IN_WHEEL.is_dir() and str(IN_WHEEL) not in sys.path:
        sys.path.insert(0, str(IN_WHEEL))
        # For the processes that a command starts.
        paths = filter(None, [str(IN_WHEEL), os.environ.get("PYTHONPATH")])
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    name, *rest = given = argv or [""]
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
        if error.name.partition(".")[0] in ("sat_tf", "training", "serving", "digits"):
            raise
        packages = installation("client" if name == "client" else "train")
        print(f"Error: {name} needs {error.name}: {packages}", file=sys.stderr)
        return 2


def run() -> None:
    """Runs the command as the process."""
    run_process(main)


if __name__ == "__main__":
    run()
