"""Fixtures of the tests of serving: toy models, exported once, and servers over real gRPC."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from serving.local_server.server import LocalServer
from tests.serving import toys
from tests.serving.export_fixtures import answers, exports, images, litert_exports  # noqa: F401  (fixtures are found by name here)


@dataclass
class Caller:
    """The stubs of one server."""

    server: LocalServer
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
    """Versions 1, 2 and 3, never changed by a test."""
    folder = tmp_path_factory.mktemp("exported")
    for version in (1, 2, 3):
        toys.export(folder, version)
    return folder


@pytest.fixture
def place(toy_exports, tmp_path) -> Callable[..., Path]:
    """Copies versions into a folder of the test's own, each in one step; returns the folder."""
    folder = tmp_path / "export"
    folder.mkdir()

    def put(*versions: int) -> Path:
        for version in versions:
            shutil.copytree(toy_exports / str(version), folder / f"copying-{version}")
            (folder / f"copying-{version}").rename(folder / str(version))
        return folder

    return put


@contextlib.contextmanager
def _serving(folder: Path, **options) -> Iterator[Caller]:
    server = LocalServer(folder, port=0, **{"poll_seconds": 0.05, **options})
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
