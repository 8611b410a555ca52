"""The second view in a browser: draw a digit, step through the glimpses; keys."""

import numpy as np
import pytest

from digits import page as digits_page
from tests.browser import browser, grey, watched_pages  # noqa: F401  (a fixture, found by name)
from tests.serving.web.page_fixtures import listening, page_of
from tests.serving.web.scripted_model import ScriptedModel

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address():
    with listening(page_of(digits_page.models(), soft=ScriptedModel())) as url:
        yield url


@pytest.fixture
def open_page(browser):  # noqa: F811
    """Opens the view, without the digit that it opens with; the last glimpse is shown at once."""
    with watched_pages(browser, reduced_motion="reduce") as go:

        def open_view(url: str, *args, **options):
            page = go(f"{url}/digits", *args, **options)
            wait_for_answer(page)
            page.get_by_role("button", name="Clear").click()
            return page

        yield open_view


def draw(page, *points: tuple[float, float]) -> None:
    """Draws a line through points, shares of the paper, with the mouse."""
    box = page.locator("#paper").bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=5)
    page.mouse.up()


def wait_for_answer(page, text: str = "It reads 7") -> None:
    page.locator("#answer").filter(has_text=text).wait_for()


def assert_glimpse(page, number: int) -> None:
    assert f"Glimpse {number} of 6" in page.locator("#said").inner_text()
    assert page.locator("#boxes .past").count() == number - 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_digit_drawn_by_the_mouse_is_read_with_boxes(open_page, address, scheme):
    page = open_page(address, scheme=scheme)
    paper = page.locator("#paper")
    assert page.locator("#result").is_hidden()
    before = grey(paper)
    draw(page, (0.3, 0.2), (0.7, 0.2), (0.5, 0.8))
    assert np.abs(grey(paper) - before).max() > 80  # ink that is seen
    wait_for_answer(page)
    assert_glimpse(page, 6)
    assert page.locator(".bars .best").inner_text().split()[0] == "7"


def test_arrow_keys_go_from_glimpse_to_glimpse(open_page, address):
    page = open_page(address)
    page.get_by_role("button", name="Write a 7").click()
    wait_for_answer(page)
    page.get_by_role("button", name="Glimpse 3").focus()
    for key, number in (("Home", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 6)):
        page.keyboard.press(key)
        assert_glimpse(page, number)
    page.get_by_role("button", name="Back").click()
    assert_glimpse(page, 5)
    page.get_by_role("button", name="Play").click()
    page.locator("#said").filter(has_text="Glimpse 6 of 6").wait_for()
    page.get_by_role("button", name="Play").wait_for()


FOCUSED = "document.activeElement.getAttribute('aria-label') || document.activeElement.id"


def test_the_keyboard_alone_draws_and_reads(open_page, address):
    page = open_page(address)
    page.get_by_role("radio").first.focus()
    while page.evaluate(FOCUSED) != "Write a 2":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    wait_for_answer(page, "It reads 2")
    reached = []
    while "Glimpse 6" not in reached:
        page.keyboard.press("Tab")
        reached.append(page.evaluate(FOCUSED))
        assert len(reached) < 20
    assert "play" in reached


def test_the_transformer_shows_its_quadrilateral_and_turns_the_paper(open_page, address):
    page = open_page(address)
    page.get_by_label("A digit transformed").check()
    wait_for_answer(page)  # it writes a digit of its own
    assert page.locator("#steps").is_hidden() and page.locator("#boxes .now").is_visible()
    upright = page.locator("#said").inner_text()
    assert upright.startswith("Turned by")
    with page.expect_response("**/api/digits"):
        page.get_by_label("Turn").fill("30")
    page.wait_for_function(
        "(said) => document.querySelector('#said').textContent !== said", arg=upright
    )
