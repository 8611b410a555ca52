"""Ports for processes that a test starts."""

import contextlib
import socket


def free_ports(count: int) -> list[int]:
    """Returns different free ports of the loopback interface."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]
