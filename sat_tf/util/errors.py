"""Errors about values and run folders, in one form each."""

from __future__ import annotations

_LONGEST = 1000  # characters of a value in a message


def invalid_value(
    name: str, expected: str, got: object, kind: str = "argument", flag: str | None = None
) -> ValueError:
    """Describes an invalid value in Keras' form.

    Args:
        name: The argument or key, as the user writes it.
        expected: What would have been valid.
        got: What came; a string is shown as it is, anything else as its `repr`.
        kind: "argument", or "key" of a configuration.
        flag: The flag of the command line that sets it, if any.
    """
    shown = got if isinstance(got, str) else repr(got)
    shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."
    by_flag = f" (`{flag}`)" if flag else ""
    return ValueError(
        f"Received an invalid value for {kind} `{name}`{by_flag}: expected {expected}, got {shown}."
    )


def installation(extra: str) -> str:
    """Returns the command that installs the packages of an extra of `setup.py` in a checkout."""
    return f'pip install -e ".[{extra}]"'


class RunError(ValueError):
    """A folder is not a finished run, or its files do not fit each other."""


def other_version(path: object, error: Exception) -> RunError:
    """Describes a run's configuration that this version cannot read."""
    return RunError(
        f"{path} is not a configuration of this version: {error} Rename or remove the key in the "
        "file, or train the run again."
    )
