"""Calls to a server that is away, comes back, is slow or refuses; encryption."""

import logging
import shutil
import subprocess
from concurrent import futures

import grpc
import pytest

from serving.client import CaptionClient, Connection, ServingError
from serving.client.protocol import PREDICT, PredictResponse
from serving.local_server.server import LocalServer
from tests.serving.processes import free_ports

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def predict(connection: Connection, image: bytes = b"ok") -> str:
    """Asks a server for a caption by `connection`."""
    with CaptionClient(connection) as client:
        return client.caption(image).text


def an_answer() -> bytes:
    """The answer of a server of one caption."""
    response = PredictResponse()
    for name, dtype, field, value, shape in (
        ("captions", 7, "string_val", b"a cat", [1, 1]),
        ("scores", 1, "float_val", -0.5, [1, 1]),
        ("valid", 10, "bool_val", True, [1]),
        ("reasons", 7, "string_val", b"", [1]),
    ):
        response.outputs[name].dtype = dtype
        getattr(response.outputs[name], field).append(value)
        for size in shape:
            response.outputs[name].tensor_shape.dim.add(size=size)
    return response.SerializeToString()


def handlers_of(answer) -> tuple[grpc.GenericRpcHandler]:
    """A service whose predictions are what `answer(request, context)` returns."""
    service, method = PREDICT[1:].split("/")
    handlers = {method: grpc.unary_unary_rpc_method_handler(answer)}
    return (grpc.method_handlers_generic_handler(service, handlers),)


@pytest.fixture
def failing_server():
    """Starts a server whose first calls fail: `(code, failures, details) -> port, calls`."""
    servers = []

    def start(code: grpc.StatusCode, failures: int, details: str = "why"):
        calls: list[float] = []

        def answer(_, context: grpc.ServicerContext) -> bytes:
            calls.append(context.time_remaining())
            if len(calls) <= failures:
                context.abort(code, details)
            return an_answer()

        server = grpc.server(futures.ThreadPoolExecutor(4))
        server.add_generic_rpc_handlers(handlers_of(answer))
        servers.append(server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        return port, calls

    yield start
    for server in servers:
        server.stop(0).wait()


def test_an_unavailable_server_is_tried_again_within_one_deadline(failing_server):
    for code in (UNAVAILABLE, grpc.StatusCode.CANCELLED):  # which is that of a call in flight
        port, calls = failing_server(code, failures=3)
        assert predict(Connection(port=port)) == "a cat"
        assert len(calls) == 4 and all(0 < left < 31 for left in calls)


def test_tries_are_bounded_by_their_number_or_by_time(failing_server):
    for wait in (False, True):
        port, calls = failing_server(UNAVAILABLE, failures=99)
        with pytest.raises(ServingError, match="is unavailable: why"):
            predict(Connection(port=port, wait=wait, timeout=2.0))
        assert len(calls) > 4 if wait else len(calls) == 4


@pytest.mark.parametrize(
    ("code", "details", "message"),
    [
        (grpc.StatusCode.DEADLINE_EXCEEDED, "why", "no answer within 30 seconds"),
        (grpc.StatusCode.NOT_FOUND, "why", "does not serve this model or version: why"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max (9)", "too large: larger than"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "queue", "refuses .*RESOURCE_EXHAUSTED: queue"),
        (grpc.StatusCode.INVALID_ARGUMENT, "why", "refuses .* 'captioner': INVALID_ARGUMENT: why"),
        (grpc.StatusCode.INTERNAL, "why", "INTERNAL: why"),
    ],
)
def test_nothing_else_is_tried_again(failing_server, code, details, message):
    port, calls = failing_server(code, failures=1, details=details)
    with CaptionClient(Connection(port=port)) as client:
        with pytest.raises(ServingError, match=message) as caught:
            client.caption(b"ok")
        assert len(calls) == 1 and caught.value.code == code


def test_no_server_is_a_clear_error_at_once_or_after_waiting(caplog):
    (port,) = free_ports(1)
    connection = Connection(port=port, wait=False)
    with pytest.raises(ServingError, match="No server answers on .* is it running"):
        predict(connection)
    assert not caplog.records
    with pytest.raises(ServingError, match="No server answers on .* is it running"):
        predict(Connection(port=port, timeout=2.0))
    assert "Waiting for it, 2 seconds at most" in caplog.text


def test_a_server_that_restarts_is_waited_for(toy_exports, monkeypatch):
    (port,), started = free_ports(1), []

    def start(*_) -> None:  # once gRPC's own retries are over
        started.append(LocalServer(toy_exports, port=port, poll_seconds=60))

    monkeypatch.setattr(logging.getLogger("serving.client.channel"), "warning", start)
    try:
        assert predict(Connection(port=port, timeout=600)) == "a cat 3"
    finally:
        for server in started:
            server.stop()
    assert len(started) == 1


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"timeout": 0.0}, "timeout"),
        ({"cert_file": "x"}, "cert"),
        ({"key_file": "x"}, "cert"),
    ],
)
def test_senseless_settings_are_errors(values, name):
    with pytest.raises(ValueError, match=f"argument `{name}`"):
        Connection(**values)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Key and certificate of a server on this machine, signed by itself."""
    if not shutil.which("openssl"):
        pytest.skip("needs the openssl command to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout key.pem -out cert.pem"
    command += " -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder / "key.pem", folder / "cert.pem"


@pytest.fixture
def encrypted_port(certificate):
    """Answers behind TLS, as TF Serving with `--ssl_config_file`: `(mutual) -> port`."""
    key, cert = (path.read_bytes() for path in certificate)
    servers = []

    def start(mutual: bool = False) -> int:
        servers.append(grpc.server(futures.ThreadPoolExecutor(2)))
        servers[-1].add_generic_rpc_handlers(handlers_of(lambda *_: an_answer()))
        credentials = grpc.ssl_server_credentials([(key, cert)], cert if mutual else None, mutual)
        port = servers[-1].add_secure_port("127.0.0.1:0", credentials)
        servers[-1].start()
        return port

    yield start
    for server in servers:
        server.stop(0).wait()


def test_a_trusted_certificate_is_taken(encrypted_port, certificate):
    assert predict(Connection(port=encrypted_port(), ca_file=certificate[1])) == "a cat"


@pytest.mark.parametrize(
    ("tls", "why"),
    [(True, "No TLS with .* --ca-file.*CERTIFICATE_VERIFY_FAILED"), (False, r"want TLS \(--tls\)")],
)
def test_an_unknown_certificate_or_none_is_told_at_once(encrypted_port, tls, why):
    with pytest.raises(ServingError, match=why):
        predict(Connection(port=encrypted_port(), tls=tls, wait=False))


def test_a_server_may_ask_for_a_certificate_of_the_client(encrypted_port, certificate):
    key, cert = certificate
    port = encrypted_port(mutual=True)
    with pytest.raises(ServingError, match=r"client certificate \(--cert, --key\)"):
        predict(Connection(port=port, ca_file=cert, wait=False))
    connection = Connection(port=port, ca_file=cert, cert_file=cert, key_file=key)
    assert predict(connection) == "a cat"
