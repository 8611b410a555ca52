"""The page in front of scripted models; folders that it takes for runs and exports."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn
from PIL import Image

from sat_tf.config import SearchConfig
from sat_tf.inference.litert_captioner import GRAPHS, SETTINGS, VOCABULARY, Settings
from serving.client import Connection
from serving.web import app
from serving.web.app import Page, View
from serving.web.captioning import Captioner, served
from tests.image_files import encode
from tests.serving.web.scripted_model import ScriptedModel, serve
from tests.waiting import eventually

_STARTS_WITHIN = 20.0  # seconds


def photograph(width: int = 120, height: int = 80, kind: str = "JPEG") -> bytes:
    """A bright photograph, half orange and half white."""
    image = Image.new("RGB", (width, height), (250, 240, 230))
    image.paste((250, 200, 120), (0, 0, width // 2, height))
    return encode(image, kind)


@contextlib.contextmanager
def page_of(*views: View, **models: ScriptedModel | int) -> Iterator[Page]:
    """A page of captioners by name, each served here, or away at a port."""
    with contextlib.ExitStack() as stack:
        captioners = {}
        for name, model in models.items():
            port = model if isinstance(model, int) else stack.enter_context(serve(model))
            connection = Connection(port=port, timeout=20.0, wait=False)
            captioners[name] = _captioner(served(connection, name))
        yield Page(captioners, views, hosts=("127.0.0.1", "testserver"))


def _captioner(caption: Callable[[bytes], dict]) -> Captioner:
    return lambda content, _: asyncio.to_thread(caption, content)


@contextlib.contextmanager
def listening(page: Page, **options) -> Iterator[str]:
    """Serves a page inside the `with`, with options of uvicorn; yields its address."""
    config = uvicorn.Config(page.app(), port=0, log_level="warning", http=app.Connection, **options)
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


def make_run(folder: Path, kind: str = "soft", data: str = "scenes") -> Path:
    """The files by which a run is known."""
    folder.mkdir(parents=True)
    config = {"attention": {"kind": kind}, "data": {"name": data, "language": "de"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocabulary.json").write_text("{}")
    (folder / "best.weights.h5").write_bytes(b"weights")
    return folder


def make_export(folder: Path) -> Path:
    """The files by which an export for LiteRT is known."""
    folder.mkdir(parents=True)
    digests = dict.fromkeys((*GRAPHS, VOCABULARY), "")
    settings = Settings(288, "crop", (9, 9), SearchConfig(), "float32", {}, GRAPHS[0], digests)
    (folder / SETTINGS).write_text(settings.to_json())
    for name in (*GRAPHS, VOCABULARY):
        (folder / name).touch()
    return folder
