"""Errors about values and about run folders, in one form each."""

from __future__ import annotations

import numbers
import sys


def invalid_value(
    name: str, expected: str, got: object, kind: str = "argument", flag: str | None = None
) -> ValueError:
    """Describes an invalid value in Keras' form.

    Args:
        name: The argument or key, as the user writes it.
        expected: What would have been valid.
        got: What came; a string is shown as it is, anything else by its `repr`.
        kind: "argument", or "key" of a configuration.
        flag: The flag of the command line that sets it, if any.

    Returns:
        The error, to be raised by the caller.
    """
    shown = got if isinstance(got, str) else repr(got)
    by_flag = f" (`{flag}`)" if flag else ""
    return ValueError(
        f"Received an invalid value for {kind} `{name}`{by_flag}: expected {expected}, got {shown}."
    )


class RunError(ValueError):
    """A folder is not a finished run, or its files do not fit each other."""


def other_version(path: object, error: Exception) -> RunError:
    """Describes a run's configuration that this version cannot read.

    Returns:
        The error, to be raised by the caller.
    """
    return RunError(
        f"{path} is not a configuration of this version: {error} Rename or remove the key in the "
        "file, or train the run again."
    )


def is_number(value: object, kind: type = numbers.Real) -> bool:
    """Tells whether a value is a number of a kind, NumPy's included, that a float can hold."""
    if not isinstance(value, kind) or isinstance(value, bool):
        return False
    return not isinstance(value, numbers.Integral) or abs(value) <= sys.float_info.max


def positive(name: str, value: int) -> int:
    """Returns `value`, the argument `name`; raises `ValueError` unless it is a positive integer."""
    if not is_number(value, numbers.Integral) or value < 1:
        raise invalid_value(name, "a positive integer", repr(value))
    return value


def dropout_rate(name: str, value: float) -> float:
    """Returns `value`, the argument `name`, or raises `ValueError` if it is not in [0, 1)."""
    if not is_number(value) or not 0.0 <= value < 1.0:
        raise invalid_value(name, "a number in [0, 1)", repr(value))
    return value
