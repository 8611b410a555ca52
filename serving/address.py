"""The address of a server: where it listens, where a client finds it."""

from __future__ import annotations

import errno
import socket

from sat_tf.util.errors import invalid_value


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
