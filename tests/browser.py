"""A headless browser for tests that look at pages as a person would."""

import contextlib
import functools
import http.server
import io
import os
import shutil
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from PIL import Image

OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
OPTIONS += ["--use-fake-device-for-media-stream"]  # a camera, of a moving test card
REQUIRED = "SAT_TF_REQUIRE_BROWSER"


@pytest.fixture(scope="module")
def browser():
    """Chromium, driven by Playwright; the tests are skipped where either is missing.

    With `SAT_TF_REQUIRE_BROWSER=1`, as in continuous integration, they fail instead.
    """
    missing = pytest.fail if os.environ.get(REQUIRED) == "1" else pytest.skip
    path = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
    )
    if not path:
        missing("needs Chromium: apt install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("needs Playwright: pip install -r requirements-dev.txt")
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=OPTIONS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def runtime(tmp_path_factory):
    """The archive of LiteRT for browsers; without npm, or its registry, such tests are left out."""
    from serving.export_web import read_runtime

    try:
        content = read_runtime(None)
    except ValueError as error:
        pytest.skip(f"left out: {error}")
    path = tmp_path_factory.mktemp("runtime") / "runtime.tgz"
    path.write_bytes(content)
    return path


@contextlib.contextmanager
def served_folder(folder) -> Iterator[str]:
    """Serves a folder below a path, as a static host does; yields its address."""
    handler = functools.partial(_Quiet, directory=str(folder.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/{folder.name}/"
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_) -> None:
        pass


@contextlib.contextmanager
def watched_pages(browser, **options) -> Iterator[Callable]:
    """Opens addresses; a message in the console is an error unless it is expected.

    Args:
        browser: Chromium, the fixture.
        **options: Of every page.
    """
    opened, messages = [], []

    def go(url: str, width: int = 1280, scheme: str = "light", expected: str = ""):
        size = {"width": width, "height": 900}
        page = browser.new_page(viewport=size, color_scheme=scheme, **options)
        opened.append(page)
        page.on("console", lambda m: (expected and expected in m.text) or messages.append(m.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.goto(url)
        return page

    yield go
    for page in opened:
        page.close()
    assert messages == []


def grey(element) -> np.ndarray:
    """An element as it is on the screen after every transition, in grey."""
    shot = element.screenshot(animations="disabled")
    return np.asarray(Image.open(io.BytesIO(shot)).convert("L"), np.float64)


def brightness(crop, grid: tuple[int, int]) -> np.ndarray:
    """Mean grey of each cell of a crop's grid."""
    shot = Image.fromarray(grey(crop)).resize((grid[1] * 20, grid[0] * 20))
    return np.asarray(shot).reshape(grid[0], 20, grid[1], 20)[:, 5:15, :, 5:15].mean(axis=(1, 3))


def violations(page) -> list[tuple[str, list[str]]]:
    """Rules of accessibility that a page breaks, by axe, each with the elements that break it."""
    from axe_core_python.sync_playwright import Axe

    found = Axe().run(page)["violations"]
    return [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found]
