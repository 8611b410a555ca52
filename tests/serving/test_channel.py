"""Calls to a server that is away, returns, is slow or refuses; encryption."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass, field

import grpc
import numpy as np
import pytest
import tensorflow as tf

from serving.channel import PREDICT, PredictRequest, PredictResponse
from serving.client import CaptionClient, Connection, ServingError
from tests.serving.processes import free_ports

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def predict(connection: Connection, image: bytes = b"\xff\xd8") -> str:
    """Asks a server for a caption by `connection`."""
    with CaptionClient(connection) as client:
        return client.caption(image).text


@dataclass
class Failing:
    """A model server that fails its first calls.

    Attributes:
        calls: Seconds that each call had left.
    """

    code: grpc.StatusCode = UNAVAILABLE
    failures: int = 0
    details: str = "why"
    calls: list[float] = field(default_factory=list)

    def predict(self, _, context: grpc.ServicerContext) -> PredictResponse:
        """Answers with one caption."""
        self.calls.append(context.time_remaining())
        if len(self.calls) <= self.failures:
            context.abort(self.code, self.details)
        response = PredictResponse()
        values = {
            "captions": [["a cat"]],
            "scores": [[-0.5]],
            "valid": [True],
            "reasons": [""],
            "words": [[["a", "cat"]]],
            "lengths": np.array([[2]], np.int32),
        }
        for name, value in values.items():
            content = tf.make_tensor_proto(value).SerializeToString()
            response.outputs[name].ParseFromString(content)
        return response


@contextlib.contextmanager
def serve(model: Failing, credentials: grpc.ServerCredentials | None = None) -> Iterator[int]:
    """Serves a model inside the `with`; yields its port."""
    method = grpc.unary_unary_rpc_method_handler(
        model.predict, PredictRequest.FromString, PredictResponse.SerializeToString
    )
    service, _, name = PREDICT.strip("/").partition("/")
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {name: method})])
    if credentials is None:
        bound = server.add_insecure_port("127.0.0.1:0")
    else:
        bound = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield bound
    finally:
        server.stop(None).wait()


def test_an_unavailable_server_is_tried_again_within_one_deadline():
    for code in (UNAVAILABLE, grpc.StatusCode.CANCELLED):  # which is that of a call in flight
        with serve(model := Failing(code, failures=3)) as port:
            assert predict(Connection(port=port)) == "a cat"
        assert len(model.calls) == 4 and all(0 < left < 31 for left in model.calls)


def test_tries_are_bounded():
    with (
        serve(model := Failing(failures=99)) as port,
        pytest.raises(ServingError, match="UNAVAILABLE, why"),
    ):
        predict(Connection(port=port))
    assert len(model.calls) == 5


@pytest.mark.parametrize(
    ("code", "details", "message"),
    [
        (grpc.StatusCode.DEADLINE_EXCEEDED, "why", "why. Allow more seconds"),
        (grpc.StatusCode.NOT_FOUND, "why", "why. It does not serve this model or version"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max (9)", "answer is too large"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "queue", "RESOURCE_EXHAUSTED, queue[.]$"),
        (grpc.StatusCode.INVALID_ARGUMENT, "why", "INVALID_ARGUMENT, why[.]$"),
    ],
)
def test_nothing_else_is_tried_again(code, details, message):
    with (
        serve(model := Failing(code, 1, details)) as port,
        pytest.raises(ServingError, match=message) as caught,
    ):
        predict(Connection(port=port))
    assert len(model.calls) == 1 and caught.value.code == code


def test_no_server_is_a_clear_error():
    (port,) = free_ports(1)
    with pytest.raises(ServingError, match="refused.*Is it running"):
        predict(Connection(port=port))


def test_a_proxy_is_passed_by_on_this_machine_and_named_elsewhere(monkeypatch):
    (proxy,) = free_ports(1)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy}")
    with serve(Failing()) as port:
        assert predict(Connection(port=port)) == "a cat"
        assert predict(Connection("localhost", port)) == "a cat"
    with pytest.raises(ServingError, match="http_proxy is set: .* add far.invalid to no_proxy"):
        predict(Connection("far.invalid"))


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
def encrypted(certificate):
    """Answers behind TLS, as TF Serving with `--ssl_config_file`: `(mutual) -> port`."""
    key, cert = (path.read_bytes() for path in certificate)

    def start(mutual: bool = False):
        made = grpc.ssl_server_credentials([(key, cert)], cert if mutual else None, mutual)
        return serve(Failing(), credentials=made)

    return start


def test_a_trusted_certificate_is_taken(encrypted, certificate):
    with encrypted() as port:
        assert predict(Connection(port=port, ca_file=certificate[1])) == "a cat"


@pytest.mark.parametrize(
    ("tls", "why"),
    [(True, "CERTIFICATE_VERIFY_FAILED.* right --ca-file"), (False, r"want TLS \(--tls\)")],
)
def test_an_unknown_certificate_or_none_is_told(encrypted, tls, why):
    with encrypted() as port, pytest.raises(ServingError, match=why):
        predict(Connection(port=port, tls=tls))


def test_a_server_may_ask_for_a_certificate_of_the_client(encrypted, certificate):
    key, cert = certificate
    with encrypted(mutual=True) as port:
        with pytest.raises(ServingError, match=r"a certificate \(--cert, --key\)"):
            predict(Connection(port=port, ca_file=cert))
        connection = Connection(port=port, ca_file=cert, cert_file=cert, key_file=key)
        assert predict(connection) == "a cat"
