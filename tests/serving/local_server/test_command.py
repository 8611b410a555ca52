"""The local server's command: flags, another process, SIGTERM."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from serving.client import CaptionClient, Connection, ServingError
from serving.local_server import check_port, main
from tests.waiting import eventually

CODE = """
import sys
from serving.local_server import check_port, main
status = main(sys.argv[1:])
loaded = [name for name in sys.modules if name.startswith(("sat_tf.", "training"))]
print("project code:", [name for name in loaded if not name.startswith("sat_tf.util")])
sys.exit(status)
"""


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--grace-seconds", "-1"], "`--grace-seconds`: expected a number in"),
        (["--port", "70000"], "`--port`: expected 0 to 65535, got 70000"),
        ([], "expected a folder that holds version folders"),
    ],
)
def test_a_wrong_flag_is_an_error(tmp_path, capsys, argv, message):
    assert main([str(tmp_path), *argv]) == 2
    assert message in capsys.readouterr().err


def test_a_taken_port_is_an_error_that_says_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(OSError, match=f"Cannot listen on port {port} .*`--port`"):
            check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)


def caption(client: CaptionClient, content: bytes) -> str:
    """Sends a toy's image as it is."""
    (answer,) = client.answers([content])
    return answer.text


def is_stopping(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return False
    return True


def test_sigterm_finishes_what_is_in_flight(toy_exports, held):
    command = [sys.executable, "-c", CODE, str(toy_exports), "--port", "0"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            line = process.stdout.readline()
            port = int(re.fullmatch(r"Serving captioner on 127.0.0.1:(\d+)\n", line)[1])
            connection = Connection(port=port, timeout=300)
            with CaptionClient(connection) as client, ThreadPoolExecutor(1) as pool:
                assert caption(client, b"ok") == "a cat 3"
                slow = pool.submit(caption, client, held.image)
                held.wait_until_in_flight()
                process.send_signal(signal.SIGTERM)
                eventually(lambda: is_stopping(port))
                with (
                    CaptionClient(Connection(port=port)) as late,
                    pytest.raises(ServingError, match="Is it running"),
                ):
                    caption(late, b"ok")
                held.release()
                assert slow.result() == "a cat 3"
            out, err = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert out == "project code: []\n"
    assert err.startswith("Loading version 3 of ") and "deprecated" not in err


def test_a_call_that_never_ends_does_not_keep_the_server(toy_exports):
    command = [sys.executable, "-m", "serving.local_server", str(toy_exports), "--port", "0"]
    command += ["--grace-seconds", "0.5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        port = int(process.stdout.readline().rpartition(":")[2])
        with (
            CaptionClient(Connection(port=port)) as client,
            ThreadPoolExecutor(1) as pool,
        ):
            assert caption(client, b"ok") == "a cat 3"
            stuck = pool.submit(caption, client, b"stuck")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            assert stuck.exception()
