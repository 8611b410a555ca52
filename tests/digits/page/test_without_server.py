"""Digit models in a browser, without a server, answer as in Python."""

import base64

import numpy as np
import pytest

import digits
from digits.reader import DigitReader
from serving.export_web import write_site
from tests.browser import browser, runtime, served_folder, violations, watched_pages  # noqa: F401  (fixtures, found by name)
from tests.digits.small_readers import publish

pytestmark = pytest.mark.slow
DRAWINGS = 12


@pytest.fixture(scope="module")
def readers(tmp_path_factory) -> dict[str, DigitReader]:
    """The pretrained models, and one with its first glimpse in a random place."""
    random = publish(tmp_path_factory.mktemp("readers") / "random", "ram")
    return {name: digits.load(name) for name in digits.names()} | {"random": digits.load(random)}


@pytest.fixture(scope="module")
def site(readers, runtime, tmp_path_factory):  # noqa: F811
    out = tmp_path_factory.mktemp("site") / "site"
    write_site(out, [], [reader.path for reader in readers.values()], runtime)
    assert sum(path.stat().st_size for path in out.glob("models/*.npz")) < 1.5e6
    return out


@pytest.fixture(scope="module")
def address(site):
    with served_folder(site) as url:
        yield url


@pytest.fixture
def open_page(browser):  # noqa: F811
    with watched_pages(browser, reduced_motion="reduce") as go:
        yield go


def strokes(count: int) -> list[np.ndarray]:
    """Drawings of one and two thick random lines, apart, on papers of several sizes."""
    random, drawn = np.random.default_rng(5), []
    for n in range(count):
        height, width = random.integers(40, 200, 2)
        y, x = np.mgrid[:height, :width] / [[[height]], [[width]]]
        ink = np.zeros([height, width])
        for left in (0.0, 0.5) if n % 2 else (0.25,):
            points = random.uniform([left, 0.1], [left + 0.4, 0.9], [4, 2])
            for (x0, y0), (x1, y1) in zip(points[:-1], points[1:], strict=True):
                for share in np.linspace(0, 1, 50):
                    far = np.hypot(x - x0 - share * (x1 - x0), y - y0 - share * (y1 - y0))
                    ink = np.maximum(ink, np.clip(2 - far / 0.04, 0, 1))
        drawn.append(np.rint(255 * ink).astype(np.uint8))
    return drawn


READ = """async ([name, drawings]) => {
  await SatEngine.page();
  const model = (await SatEngine.models("digits")).find((one) => one.name === name);
  return Promise.all(drawings.map(([width, height, ink]) => {
    const canvas = Object.assign(document.createElement("canvas"), { width, height });
    const grey = new Uint8ClampedArray(4 * ink.length);
    const pixels = grey.map((_, i) => (i % 4 < 3 ? ink[i >> 2] : 255));
    canvas.getContext("2d").putImageData(new ImageData(pixels, width, height), 0, 0);
    const { signal } = new AbortController();
    return SatEngine.read("digits", canvas, { model, signal, tell: () => {} });
  }));
}"""


@pytest.mark.parametrize("name", ["ram_28", "dram_pairs", "stn_rts", "random"])
def test_a_browser_reads_what_python_reads(open_page, address, readers, name):
    page = open_page(f"{address}digits.html")
    drawn, reader = strokes(DRAWINGS), readers[name]
    sent = [[*ink.shape[::-1], ink.ravel().tolist()] for ink in drawn]
    for ink, found in zip(drawn, page.evaluate(READ, [name, sent]), strict=True):
        expected = reader.read(ink)
        for key, values in (("probabilities", 2e-4), ("corners", 1e-4)):
            got = [step[key] for step in found["steps"]]
            np.testing.assert_allclose(got, getattr(expected, key), atol=values)
        last = found["steps"][-1]
        assert found["answers"][np.argmax(last["probabilities"])] == expected.answer
        np.testing.assert_allclose(found["frame"], expected.frame, atol=1e-12)
        for got, values in (
            (found["image"], expected.image),
            (last["patches"][-1], expected.patches[-1, ..., -1]),
        ):
            np.testing.assert_allclose(
                np.frombuffer(base64.b64decode(got), np.uint8), 255 * values.ravel(), atol=1.01
            )


@pytest.mark.parametrize("width", [1280, 390])
def test_a_digit_that_is_written_is_read(open_page, address, width):
    page = open_page(address, width)  # without captioners it is the first page
    assert not page.get_by_role("link", name="Photographs").is_visible()
    answer = page.locator("#answer")
    answer.filter(has_text="It reads 7").wait_for()
    page.get_by_role("radio", name="Glimpses of two digits").check()
    answer.filter(has_text="It reads 4 and 7").wait_for()
    page.get_by_role("radio", name="A digit transformed").check()
    for digit in "38":
        page.get_by_role("button", name=f"Write a {digit}").press("Enter")
        answer.filter(has_text=f"It reads {digit}").wait_for()
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_model_that_does_not_come_is_told_and_tried_again(open_page, address, site):
    page = open_page(f"{address}digits.html", expected="Failed to load resource")
    answer, message = page.locator("#answer"), page.locator("#message")
    answer.filter(has_text="It reads 7").wait_for()
    (graph,) = site.glob("models/stn_rts*.npz")
    away = graph.rename(site / "away")
    page.get_by_role("radio", name="A digit transformed").check()
    message.filter(has_text="is not there (status 404)").wait_for()
    away.rename(graph)
    page.get_by_role("button", name="Write a 3").click()
    answer.filter(has_text="It reads 3").wait_for()
    assert message.inner_text() == ""


def test_a_browser_or_a_place_that_cannot_run_models_is_told(open_page, address, site):
    page = open_page(f"file://{site}/index.html")  # that of the only view
    page.locator("#message").filter(has_text="python -m http.server").wait_for()
    page.add_init_script("WebAssembly.validate = () => false")
    page.goto(f"{address}digits.html")
    page.locator("#message").filter(has_text="no WebAssembly SIMD").wait_for()
