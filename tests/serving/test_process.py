"""A port is checked before anything is loaded; memory that threads freed goes back."""

import platform
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from serving.process import check_port


def test_a_free_port_passes_and_a_taken_one_is_an_error_that_says_what_to_do():
    check_port("127.0.0.1", 0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(OSError, match=f"Cannot listen on port {port} .*`--port`"):
            check_port("127.0.0.1", port)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")
def test_what_threads_freed_is_returned():
    def megabytes_kept() -> float:
        command = [sys.executable, "-m", "tests.serving.threads_of_large_blocks"]
        root = Path(__file__).resolve().parents[2]
        return float(subprocess.run(command, cwd=root, capture_output=True, check=True).stdout)

    # 0 to 80 MB; by glibc's own settings 160. Rarely, another small block of the interpreter lies
    # above the large ones: one of three processes has to do.
    assert any(megabytes_kept() < 100 for _ in range(3))
