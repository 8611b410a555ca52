"""A port is checked before anything is loaded."""

import socket

import pytest

from serving.local_server import check_port


def test_a_free_port_passes_and_a_taken_one_is_an_error_that_says_what_to_do():
    check_port("127.0.0.1", 0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(OSError, match=f"Cannot listen on port {port} .*`--port`"):
            check_port("127.0.0.1", port)
