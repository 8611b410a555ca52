"""Captions in a browser: `python -m benchmarks.browser SITE IMAGES`.

SITE is of `serving.export_web`. Headless Chromium captions photographs one after another,
with files from this machine: time until the captioners are ready, of the first caption and of later
ones, and memory of the page's process at the start and at the end. It takes Playwright.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median

import tyro

from benchmarks.measure import command
from sat_tf.inference.batch import image_files
from sat_tf.util.errors import invalid_value

_OPEN = """async () => {
  const page = await (await fetch("page.json")).json();
  const worker = new Worker("assets/worker.js");
  window.ask = (file) => new Promise((done, fail) => {
    worker.onmessage = ({ data }) => data.failed ? fail(Error(data.failed)) : data.done && done();
    worker.postMessage({ id: (window.asked = (window.asked ?? 0) + 1), page, file });
  });
  await ask();
}"""
_CAPTION = """async (path) => {
  const file = await (await fetch(path)).blob();
  const start = performance.now();
  await ask(file);
  return performance.now() - start;
}"""
_PHOTOGRAPHS = "/photographs/"
_SETTLED = 5  # captions after which memory is read first


class _Files(http.server.SimpleHTTPRequestHandler):
    """Serves the site, and the photographs below `_PHOTOGRAPHS` by their number."""

    def __init__(self, *given, photographs: list[Path], **options) -> None:
        self._photographs = photographs
        super().__init__(*given, **options)

    def translate_path(self, path: str) -> str:
        if path.startswith(_PHOTOGRAPHS):
            return str(self._photographs[int(path.removeprefix(_PHOTOGRAPHS))])
        return super().translate_path(path)

    def log_message(self, *_) -> None:
        pass


def run(
    site: tyro.conf.Positional[Path], images: tyro.conf.Positional[Path], count: int = 200
) -> None:
    """Times the captions of a page without a server in a headless browser.

    Args:
        site: Folder of the page.
        images: Folder of photographs.
        count: The most photographs.
    """
    from playwright.sync_api import sync_playwright

    if not (site / "page.json").is_file():
        raise invalid_value("site", "a folder of `--format web`", str(site))
    photographs = image_files([images])[:count]
    handler = functools.partial(_Files, directory=str(site), photographs=photographs)
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        sync_playwright() as p,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = p.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_address[1]}/")
        start = time.perf_counter()
        page.evaluate(_OPEN)
        print(f"ready after {time.perf_counter() - start:.2f} s")
        times = []
        for n in range(len(photographs)):
            times.append(page.evaluate(_CAPTION, f"{_PHOTOGRAPHS}{n}") / 1000)
            if n == min(_SETTLED, len(photographs) - 1):
                before = _memory()
        later = times[1:] or times
        print(f"first caption {times[0]:.2f} s, later ones {median(later):.2f} s ({len(later)})")
        print(f"memory of the page {before} MB after {_SETTLED}, {_memory()} MB at the end")
        browser.close()
        server.shutdown()


def _memory() -> int:
    """Returns the resident memory of Chromium's largest page, MB."""
    listed = subprocess.run(["ps", "-eo", "rss,args"], capture_output=True, text=True, check=True)
    rows = (line.split(None, 1) for line in listed.stdout.splitlines()[1:])
    return max(int(size) for size, text in rows if "--type=renderer" in text) // 1024


if __name__ == "__main__":
    sys.exit(command(run))
