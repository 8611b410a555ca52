"""The page as a person meets it: a photograph in, maps on it; keys, a phone, what goes wrong."""

from __future__ import annotations

import numpy as np
import pytest

from tests.browser import brightness, browser, violations, watched_pages  # noqa: F401  (a fixture, found by name)
from tests.serving.web.page_fixtures import listening, page_of, photograph
from tests.serving.web.scripted_model import GRID, PLACES, WORDS, ScriptedModel, serve

pytestmark = pytest.mark.slow

UPLOADS = 20
FILE = {"name": "photo.jpg", "mimeType": "image/jpeg", "buffer": photograph()}


@pytest.fixture(scope="module")
def address():
    """Soft, hard and no attention side by side."""
    kinds = {kind: ScriptedModel(kind=kind) for kind in ("soft", "hard", "none")}
    with page_of(**kinds) as page, listening(page) as url:
        yield url


@pytest.fixture
def open_page(browser):  # noqa: F811
    """Opens the page."""
    with watched_pages(browser) as go:

        def open_samples(*args, **options):
            page = go(*args, **options)
            page.locator(".samples img").first.wait_for()
            return page

        yield open_samples


def choose(page, file: dict | None = None) -> None:
    page.locator("#file").set_input_files(files=[file or FILE])


def caption(page, column: int = 0):
    """The words of a column, once they are there."""
    words = page.locator(".column").nth(column).locator(".word")
    words.first.wait_for()
    return words


def wait_for_message(page, text: str) -> None:
    page.locator("#message").filter(has_text=text).wait_for()


def brightest(page) -> tuple[int, int]:
    """The cell of the first column's grid that is the brightest."""
    return np.unravel_index(brightness(page.locator(".crop").first, GRID).argmax(), GRID)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_photograph_is_uploaded_and_every_word_shows_its_map(open_page, address, scheme):
    page = open_page(address, scheme=scheme)
    choose(page)
    words = caption(page)
    assert words.all_inner_texts() == list(WORDS[0])
    for word, place in enumerate(PLACES):
        words.nth(word).hover()
        assert brightest(page) == place
    assert "probability 50 %, gate β 0.50" in page.locator(".said").first.inner_text()


def test_another_hypothesis_has_its_own_maps(open_page, address):
    page = open_page(address)
    choose(page)
    caption(page)
    page.get_by_label("Hypothesis of the beam").first.select_option(index=1)
    words = caption(page)
    assert words.all_inner_texts() == list(WORDS[1])
    words.first.hover()
    assert brightest(page) == PLACES[-1]


def test_the_captioners_stand_side_by_side(open_page, address):
    page = open_page(address)
    page.get_by_role("button", name="A cat").click()
    for column in range(3):
        caption(page, column)
    boxes = [page.locator(".column").nth(n).bounding_box() for n in range(3)]
    assert len({box["y"] for box in boxes}) == 1
    hard = page.locator(".column").nth(1)
    hard.get_by_role("button", name="Draw 20").click()
    assert "20 locations drawn from this map" in hard.locator(".said").inner_text()
    assert "has no attention" in page.locator(".column").nth(2).locator(".legend").inner_text()


def test_a_phone_shows_one_captioner_at_a_time(open_page, address):
    page = open_page(address, width=390)
    choose(page)
    caption(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.locator(".column:visible").count() == 1
    page.get_by_role("button", name="none", exact=True).click()
    assert "has no attention" in page.locator(".column:visible .legend").inner_text()


FOCUSED = """(() => {
  const element = document.activeElement;
  return element.getAttribute("aria-label") || element.innerText;
})()"""


def test_the_keyboard_alone_reaches_everything(open_page, address):
    page = open_page(address)
    seen = []
    while "A cat" not in seen:
        page.keyboard.press("Tab")
        seen.append(page.evaluate(FOCUSED))
        assert len(seen) < 20
    assert seen[:2] == ["Choose a file", "Use the camera"]
    page.keyboard.press("Enter")
    caption(page)
    while page.evaluate(FOCUSED) != "a":
        page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(FOCUSED) == "dog"
    assert brightest(page) == PLACES[1]


DROP = """([kind, bytes]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], "photo.jpg", { type: "image/jpeg" }));
  const drop = { dataTransfer: data, bubbles: true, cancelable: true };
  const event = kind === "drop" ? new DragEvent("drop", drop)
    : new ClipboardEvent("paste", { clipboardData: data, bubbles: true });
  document.body.dispatchEvent(event);
}"""


@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_a_photograph_is_dropped_or_pasted(open_page, address, kind):
    page = open_page(address)
    page.evaluate(DROP, [kind, list(photograph())])
    assert caption(page).count() == len(WORDS[0])


def test_what_cannot_be_read_is_told_and_the_page_still_works(open_page, address):
    page = open_page(address, expected="400 (Bad Request)")
    heic = b"\0\0\0\x18ftypheic" + bytes(40)
    for content, says in ((b"text", "cannot be read as an image"), (heic, "HEIC")):
        choose(page, FILE | {"buffer": content})
        wait_for_message(page, says)
        assert page.locator(".column").count() == 0
    choose(page, FILE | {"buffer": bytes(21 * 2**20)})
    wait_for_message(page, "larger than 20 MB")
    choose(page)
    caption(page)
    assert page.locator("#message").inner_text() == ""


HAS_IMAGE = """video => video.readyState >= 2 || new Promise(
  done => video.addEventListener("loadeddata", () => done(true), { once: true }))"""


def test_the_camera_takes_a_photograph(open_page, address):
    page = open_page(address)
    page.context.grant_permissions(["camera"])
    page.get_by_role("button", name="Use the camera").click()
    page.locator("video").evaluate(HAS_IMAGE)
    page.get_by_role("button", name="Take the photograph").click()
    assert caption(page).count() == len(WORDS[0])
    assert not page.locator("#booth").is_visible()


NO_CAMERA = """(name) => {
  navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException("None", name));
}"""


@pytest.mark.parametrize(
    ("error", "says"),
    [("NotFoundError", "No camera was found"), ("NotAllowedError", "does not let this page use")],
)
def test_a_machine_without_a_camera_is_told(open_page, address, error, says):
    page = open_page(address)
    page.evaluate(NO_CAMERA, error)
    page.get_by_role("button", name="Use the camera").click()
    wait_for_message(page, says)
    choose(page)
    caption(page)


def test_a_server_that_stops_is_waited_for(open_page):
    model = ScriptedModel()
    with serve(model) as port:
        pass
    with page_of(soft=port) as served, listening(served) as url:
        page = open_page(url, expected="503 (Service Unavailable)")
        choose(page)
        page.get_by_text("does not answer. Trying again").first.wait_for()
        with serve(model, port):
            assert caption(page).count() == len(WORDS[0])
        choose(page)
        page.get_by_text("does not answer. Trying again").first.wait_for()


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (413, "The file is larger than a proxy in between accepts (status 413)."),
        (502, "The server's answer cannot be read (status 502)."),
    ],
)
def test_the_answer_of_a_proxy_is_told_by_its_status(open_page, address, status, says):
    page = open_page(address, expected=f"status of {status}")
    answer = {"status": status, "content_type": "text/html", "body": "<html>nginx</html>"}
    page.route("**/api/caption", lambda route: route.fulfill(**answer))
    choose(page)
    page.get_by_text(says).first.wait_for()
    page.unroute("**/api/caption")
    choose(page)
    caption(page)


def test_two_tabs_do_not_meet(open_page, address):
    pages = [open_page(address) for _ in range(2)]
    for page in pages:
        choose(page)
    pages[0].get_by_role("button", name="A rocket").click()
    pages[0].locator(".samples [aria-pressed=true]").wait_for()
    for page in pages:
        assert caption(page).all_inner_texts() == list(WORDS[0])
    assert pages[1].locator(".samples [aria-pressed=true]").count() == 0


def test_photographs_in_a_row_leave_nothing_behind(open_page, address):
    page = open_page(address)
    counts = []
    for _ in range(UPLOADS):
        choose(page)
        for column in range(3):
            caption(page, column)
        counts.append(page.evaluate("document.querySelectorAll('*').length"))
    assert len(set(counts)) == 1


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility_has_no_violation(open_page, address, scheme, width):
    page = open_page(address, width, scheme)
    choose(page)
    caption(page).nth(1).click()
    page.locator("summary").first.click()
    assert violations(page) == []
