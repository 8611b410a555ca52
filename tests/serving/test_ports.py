"""A port is checked before anything is loaded; free ones are found."""

from __future__ import annotations

import socket

import pytest

from serving.process import check_port, free_ports


def test_a_free_port_passes_and_a_taken_one_is_an_error_that_says_what_to_do():
    check_port("127.0.0.1", 0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(OSError, match=f"Cannot listen on port {port} .*`--port`"):
            check_port("127.0.0.1", port)


def test_a_wrong_host_is_an_error_that_names_the_flag():
    with pytest.raises(OSError, match="of no.such.host .*check `--host` and `--port`"):
        check_port("no.such.host", 0)


def test_free_ports_differ_and_can_be_listened_on():
    ports = free_ports(3)
    assert len(set(ports)) == 3
    for port in ports:
        check_port("127.0.0.1", port)
