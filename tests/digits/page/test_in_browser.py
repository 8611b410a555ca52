"""The second view as a person meets it: draw a digit, step through the glimpses; keys, a phone."""

import numpy as np
import pytest

from tests.browser import browser, grey, violations, watched_pages  # noqa: F401  (a fixture, found by name)
from tests.digits.page.scripted import CENTRES, CONFIGS, HALF, ScriptedDigits, view_of
from tests.serving.web.page_fixtures import listening, page_of
from tests.serving.web.scripted_model import ScriptedModel

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def models():
    return {name: ScriptedDigits(config) for name, config in CONFIGS.items()}


@pytest.fixture(scope="module")
def address(models):
    with listening(page_of(view_of(models), soft=ScriptedModel())) as url:
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
    """Draws a line through points, shares of the paper, by the mouse."""
    box = page.locator("#paper").bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=5)
    page.mouse.up()


def wait_for_answer(page, text: str = "It reads 7") -> None:
    page.locator("#answer").filter(has_text=text).wait_for()


def shown_box(page) -> np.ndarray:
    """Left, top, right and bottom of the present glimpse, shares of what the model was given."""
    box, stage = (page.locator(name).bounding_box() for name in ("#boxes .now", "#boxes"))
    low = np.array([box["x"] - stage["x"], box["y"] - stage["y"]])
    side = np.array([box["width"], box["height"]])
    return np.concatenate([low, low + side]) / stage["width"]


def assert_box(page, look: int) -> None:
    centre = np.array(CENTRES[look])
    expected = np.concatenate([centre - HALF, centre + HALF])
    np.testing.assert_allclose(shown_box(page), expected, atol=0.02)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_digit_drawn_by_the_mouse_is_read_with_boxes(open_page, address, models, scheme):
    page = open_page(address, scheme=scheme)
    paper = page.locator("#paper")
    assert page.locator("#result").is_hidden()
    before = grey(paper)
    draw(page, (0.3, 0.2), (0.7, 0.2), (0.5, 0.8))
    assert np.abs(grey(paper) - before).max() > 80  # ink that is seen
    wait_for_answer(page)
    assert_box(page, len(CENTRES) - 1)
    assert "Glimpse 3 of 3" in page.locator("#said").inner_text()
    ink = np.argwhere(models["ram"].images[-1] > 0.5)
    assert np.ptp(ink, axis=0).max() == pytest.approx(19, abs=1)  # white on black, in both schemes
    assert page.locator(".bars .best").inner_text().split() == ["7", "90", "%"]


def test_arrow_keys_go_from_glimpse_to_glimpse(open_page, address):
    page = open_page(address)
    page.get_by_role("button", name="Write a 7").click()
    wait_for_answer(page)
    page.get_by_role("button", name="Glimpse 3").focus()
    for key, look in (("Home", 0), ("ArrowRight", 1), ("ArrowLeft", 0), ("End", 2)):
        page.keyboard.press(key)
        assert_box(page, look)
        assert f"Glimpse {look + 1} of 3" in page.locator("#said").inner_text()
    page.get_by_role("button", name="Back").click()
    assert_box(page, 1)
    page.get_by_role("button", name="Play").click()
    page.locator("#said").filter(has_text="Glimpse 3 of 3").wait_for()
    page.get_by_role("button", name="Play").wait_for()


FOCUSED = "document.activeElement.getAttribute('aria-label') || document.activeElement.id"


def test_the_keyboard_alone_draws_and_reads(open_page, address):
    page = open_page(address)
    page.get_by_role("radio").first.focus()
    while page.evaluate(FOCUSED) != "Write a 2":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    wait_for_answer(page)
    reached = []
    while "Glimpse 3" not in reached:
        page.keyboard.press("Tab")
        reached.append(page.evaluate(FOCUSED))
        assert len(reached) < 20
    assert "play" in reached


def test_two_digits_are_written_one_after_the_other(open_page, address, models):
    page = open_page(address)
    page.get_by_label("Glimpses of two digits").check()
    page.get_by_role("button", name="Write a 3").click()
    assert "Now the second digit" in page.locator("#said").inner_text()
    page.get_by_role("button", name="Write a 7").click()
    wait_for_answer(page, "It reads 3 and 7")
    ink = models["dram"].images[-1] > 0.5
    assert ink[:, :30].any() and ink[:, 30:].any()
    assert page.locator("#boxes .coarse").count() == 2  # three scales
    assert page.locator(".bars li").count() == 5


def test_the_transformer_shows_its_quadrilateral_and_turns_the_paper(open_page, address, models):
    page = open_page(address)
    page.get_by_label("A digit transformed").check()
    wait_for_answer(page)  # it writes a digit of its own
    with page.expect_response("**/api/digits"):
        page.get_by_role("button", name="Write a 1").click()
    wait_for_answer(page)
    upright = models["stn"].images[-1]
    np.testing.assert_allclose(shown_box(page), [0.1, 0.1, 0.9, 0.9], atol=0.02)
    assert page.locator("#steps").is_hidden()
    assert "Turned by -45°" in page.locator("#said").inner_text()
    with page.expect_response("**/api/digits"):
        page.get_by_label("Turn").fill("60")
    wait_for_answer(page)
    widths = [
        np.ptp(np.argwhere(image > 0.5)[:, 1]) for image in (upright, models["stn"].images[-1])
    ]
    assert widths[1] > widths[0] + 5


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_every_width_shows_all_of_it_without_a_violation(open_page, address, width, scheme):
    page = open_page(address, width, scheme)
    page.locator("summary").first.click()
    labels = {"Glimpses of two digits": 2, "A digit transformed": 1, "Glimpses of one digit": 1}
    for label, digits in labels.items():
        page.get_by_label(label).check()
        for _ in range(digits):
            page.get_by_role("button", name="Write a 7").click()
        page.locator("#result").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert violations(page) == []


def test_the_views_lead_to_each_other(open_page, address):
    page = open_page(address)
    page.get_by_role("link", name="Photographs").click()
    page.locator(".samples img").first.wait_for()
    page.get_by_role("link", name="Digits").click()
    page.get_by_role("button", name="Write a 0").wait_for()
