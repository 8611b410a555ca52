"""Ports of servers, checked before models are loaded."""

from __future__ import annotations

import socket


def check_port(host: str, port: int) -> None:
    """Checks that a server can listen on a port; 0 is any free one.

    Raises:
        OSError: It cannot, for example because another server does.
    """
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family) as probe:
        # As servers do: a port whose last connections are still closing is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise OSError(
                f"Cannot listen on port {port} of {host} ({error.strerror}): stop the server that "
                "listens there, or choose another port with `--port`."
            ) from error
