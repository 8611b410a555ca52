"""The process of a server: where it listens, the memory it gives back."""

from __future__ import annotations

import ctypes
import errno
import socket

from sat_tf.errors import invalid_value

# Parameters of mallopt(3), by glibc's <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_ARENAS = 2
_LARGE = 32 * 2**20  # bytes: the largest that glibc itself comes to keep in an arena


def check_port(host: str, port: int) -> None:
    """Checks that a server can listen on a port; 0 is any free one.

    Raises:
        ValueError: There is no such port.
        OSError: It cannot, for example because another server does.
    """
    if not 0 <= port <= 65535:
        raise invalid_value("--port", "0 to 65535", port)
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            # As servers do: a port whose last connections are still closing is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        advice = "check `--host` and `--port`"
        if error.errno == errno.EADDRINUSE:
            advice = "stop the server that listens there, or choose another port with `--port`"
        raise OSError(
            f"Cannot listen on port {port} of {host} ({error.strerror}): {advice}."
        ) from error


def parse_server(text: str) -> tuple[str, int]:
    """Reads HOST:PORT.

    Raises:
        ValueError: It has another form.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise invalid_value("server", "HOST:PORT", repr(text))
    return host.strip("[]"), int(port)


def return_freed_memory() -> None:
    """Makes glibc give freed memory back to the system; does nothing for another libc.

    glibc gives threads arenas of their own, up to eight per core, and once large blocks were freed
    it leaves as much as 64 MB free in each: a server's memory grows with every thread that happens
    to decode a large image. Here there are two arenas, trimmed at 32 MB.

    To be called before TensorFlow starts its threads, as arenas that exist stay.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_ARENA_MAX, _ARENAS)
    mallopt(_MMAP_THRESHOLD, _LARGE)
    mallopt(_TRIM_THRESHOLD, _LARGE)
