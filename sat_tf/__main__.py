"""The command `sat-tf`: runs a command of `training` or `serving` by name."""

from __future__ import annotations

import difflib
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import sat_tf
from sat_tf.util.commands import COMMANDS, exit_status, run_process
from sat_tf.util.errors import installation
from sat_tf.util.removed import removed_command


def help_text() -> str:
    """Returns the list of commands."""
    lines = [f"  {name:<20}{summary}" for name, (_, summary) in COMMANDS.items()]
    options = "sat-tf COMMAND --help   lists the options of a command"
    return "\n".join(["usage: sat-tf COMMAND [OPTIONS] | --version", "", *lines, "", options])


def _imported(module: str) -> ModuleType:
    """Returns the module of a command's `main`: of a package, its `command` or `__main__`."""
    if find_spec(module).submodule_search_locations is not None:
        module += ".command" if find_spec(f"{module}.command") else ".__main__"
    return import_module(module)


def main(argv: list[str] | None = None) -> int:
    """Runs a command with the arguments after its name; returns the exit status."""
    return exit_status(lambda: _run(sys.argv[1:] if argv is None else argv), BrokenPipeError)


def _run(argv: list[str]) -> int:
    name, *rest = argv or [""]
    if name in ("", "-h", "--help"):
        print(help_text())
        return 0 if name else 2
    if name == "--version":
        print(f"sat-tf {sat_tf.__version__}")
        return 0
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        meant = f" Did you mean {close[0]}?" if close else ""
        unknown = f"there is no command {name!r}.{meant}\n\n{help_text()}"
        print(f"Error: {removed_command(name) or unknown}", file=sys.stderr)
        return 2
    module, _ = COMMANDS[name]
    sys.argv = [f"sat-tf {name}", *rest]
    try:
        return _imported(module).main(rest)
    except ModuleNotFoundError as error:
        missing = error.name.partition(".")[0]
        if missing == module.partition(".")[0]:
            print(f"Error: {name} runs in a checkout: {installation('train')}", file=sys.stderr)
            return 2
        if missing in ("sat_tf", "training", "serving", "digits"):
            raise
        packages = installation("client" if name == "client" else "train")
        print(f"Error: {name} needs {error.name}: {packages}", file=sys.stderr)
        return 2


def run() -> None:
    """Runs the command as the process."""
    run_process(main)


if __name__ == "__main__":
    run()
