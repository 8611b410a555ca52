"""The statuses of calls that fail, in TF Serving's words."""

from __future__ import annotations

import grpc
import tensorflow as tf

# TF Serving's limit. gRPC sends a status as headers, which are limited to a few kilobytes.
_MAX_BYTES = 1024
_PYTHONS_HEADING = "Graph execution error:\n\n"  # in front of the runtime's own words
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class StatusError(Exception):
    """A call, or the load of a version, that ends with a status other than OK."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def invalid(message: str) -> StatusError:
    """Returns the status of a request that is wrong, whatever the server's state."""
    return StatusError(grpc.StatusCode.INVALID_ARGUMENT, message)


def not_found(message: str) -> StatusError:
    """Returns the status of a request for a model or version that is not served."""
    return StatusError(grpc.StatusCode.NOT_FOUND, message)


def of_exception(error: Exception) -> StatusError:
    """Returns the status of an exception: the runtime's own if it raised one, else INTERNAL."""
    if isinstance(error, StatusError):
        return error
    if isinstance(error, tf.errors.OpError):
        code = _CODES.get(error.error_code, grpc.StatusCode.UNKNOWN)
        message = (error.message or type(error).__name__).removeprefix(_PYTHONS_HEADING)
        return StatusError(code, message)
    return StatusError(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")


def cut(message: str) -> str:
    """Cuts a message to 1,024 bytes, with a note."""
    content = message.encode("utf-8", "replace")
    if len(content) <= _MAX_BYTES:
        return message
    return content[:_MAX_BYTES].decode("utf-8", "ignore") + "...TRUNCATED"
