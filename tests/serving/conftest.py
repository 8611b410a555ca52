"""Fixtures of the tests of serving: toy models, exported once, and servers over real gRPC."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from serving.local_server import newest_version
from serving.model_server import ModelServer, Servable
from tests.serving import toys
from tests.serving.export_fixtures import answers, exports, images, litert_exports  # noqa: F401  (fixtures are found by name here)


@dataclass
class Caller:
    """The stubs of one server."""

    server: ModelServer
    channel: grpc.Channel

    def __post_init__(self) -> None:
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.model = model_service_pb2_grpc.ModelServiceStub(self.channel)

    def healthy(self, service: str = "") -> bool:
        return toys.is_healthy(self.channel, service)

    def predict(self, request, timeout: float = 120.0):
        return self.prediction.Predict(request, timeout=timeout)

    def caption(self, image: bytes = b"ok", timeout: float = 120.0, **spec) -> str:
        return toys.caption_of(self.predict(toys.predict_request(image, **spec), timeout))


@pytest.fixture(scope="session")
def toy_exports(tmp_path_factory) -> Path:
    """Versions 1 and 3, never changed by a test."""
    folder = tmp_path_factory.mktemp("exported")
    for version in (1, 3):
        toys.export(folder, version)
    return folder


@contextlib.contextmanager
def _serving(folder: Path) -> Iterator[Caller]:
    _, version = newest_version(folder)
    server = ModelServer(Servable(version), port=0)
    unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    try:
        with grpc.insecure_channel(server.address, unlimited) as channel:
            yield Caller(server, channel)
    finally:
        server.stop(5.0)


@pytest.fixture
def serving() -> Callable[..., contextlib.AbstractContextManager[Caller]]:
    """Starts a server on a free port, which stops at the end of the `with`."""
    return _serving


@pytest.fixture(scope="session")
def caller(toy_exports) -> Iterator[Caller]:
    """One server of version 3, shared by tests that change nothing."""
    with _serving(toy_exports) as found:
        yield found


@pytest.fixture(scope="session")
def caller_of_soft(exports) -> Iterator[Caller]:  # noqa: F811
    """One server of the captioner with soft attention."""
    with _serving(exports["soft"].version.parent) as found:
        yield found


@pytest.fixture
def held(tmp_path) -> Iterator[toys.HeldCall]:
    """A call that stays in flight until the test releases it."""
    call = toys.HeldCall(tmp_path)
    yield call
    call.close()
