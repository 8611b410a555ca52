"""The page in front of scripted models."""

import contextlib
import threading
from collections.abc import Iterator, Mapping

import uvicorn
from PIL import Image
from starlette.applications import Starlette

from sat_tf.inference import published
from serving.web.app import Model, make_app
from serving.web.captions import facts_of, samples_of
from tests.image_files import encode
from tests.waiting import eventually

_STARTS_WITHIN = 20.0  # seconds


def photograph(width: int = 120, height: int = 80, kind: str = "JPEG") -> bytes:
    """A bright photograph, half orange and half white."""
    image = Image.new("RGB", (width, height), (250, 240, 230))
    image.paste((250, 200, 120), (0, 0, width // 2, height))
    return encode(image, kind)


def page_of(
    digits: Mapping[str, Model] | None = None, facts: dict | None = None, **captioners: Model
) -> Starlette:
    """A page of captioners by name, with the samples of the pretrained ones."""
    runs = {"flickr8k_soft": published.locate("flickr8k_soft")}
    samples, files = samples_of(runs)
    described = facts_of(runs) | {"models": list(captioners), "samples": samples}
    described |= {"kinds": [""] * len(captioners), "own": [False] * len(captioners)}
    return make_app(captioners, described | (facts or {}), files, digits, max_mb=5)


@contextlib.contextmanager
def listening(app: Starlette) -> Iterator[str]:
    """Serves a page inside the `with`; yields its address."""
    config = uvicorn.Config(app, port=0, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    eventually(lambda: server.started or not thread.is_alive(), _STARTS_WITHIN)
    assert server.started, "the page does not start"
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(_STARTS_WITHIN)
