"""The viewer as a person meets it: pixels, keys, a phone's width, a screen reader's names."""

import numpy as np
import pytest
from PIL import Image

from sat_tf.inference.viewer import crop_of, data_url, hypothesis_data, report_page
from tests.browser import brightness, browser, violations, watched_pages  # noqa: F401  (a fixture, found by name)
from tests.image_files import encode

pytestmark = pytest.mark.slow

GRID = (2, 3)
WORDS = ("a", "dog", "runs")
CENTRES = ((0, 0), (1, 1), (0, 2))  # cells of the maps of these words
SIDE = (120, 240)  # height and width of the photographs: a crop is in the middle


def peaked(cell: tuple[int, int]) -> np.ndarray:
    alpha = np.full(GRID, 0.02)
    alpha[cell] = 0.9
    return alpha


def photograph() -> str:
    return data_url(encode(Image.new("RGB", SIDE[::-1], (250, 240, 220)), "JPEG"))


def page_of() -> str:
    alpha = np.stack([peaked(cell) for cell in CENTRES])
    shown = []
    for n in range(12):
        first = hypothesis_data(
            WORDS,
            f"a dog runs {n}",
            -1.0 - n,
            alpha,
            np.array([0.2, 0.9, 0.5]),
            np.log([0.9, 0.5, 0.1]),
        )
        first["words"][1]["boxes"] = [[0.0, 0.5, 1.0, 1.0]]
        other = hypothesis_data(("a", "cat"), "a cat", -3.0)
        crop = crop_of(*SIDE, "crop")
        shown.append({"image": photograph(), "name": f"{n}.jpg", "hypotheses": [first, other]})
        shown[-1] |= {"crop": crop, "references": ["a dog is running"], "rank": float(n)}
    common = {"grid": list(GRID), "kind": "hard", "model": "a captioner", "lang": "de"}
    scores = [{"name": "bleu_4", "label": "BLEU-4", "value": "21.0", "interval": "[19.8, 22.4]"}]
    return report_page("A report", shown, scores, ["A note."], common, "Log-probability")


@pytest.fixture
def open_report(browser, tmp_path):  # noqa: F811
    """Opens a page in a window of 1280 pixels; a message in the console is an error."""
    path = tmp_path / "index.html"
    with watched_pages(browser) as open_page:

        def go(page: str, scheme: str = "light"):
            path.write_text(page, encoding="utf-8")
            return open_page(path.as_uri(), scheme=scheme)

        yield go


def page_in(lang: str, *words: str, between: str = "") -> str:
    """A page of one caption."""
    one = hypothesis_data(words, between.join(words), -1.0)
    shown = [{"image": photograph(), "name": "a.jpg", "hypotheses": [one], "references": ["A"]}]
    return report_page("A report", shown, common={"lang": lang})


def test_words_without_spaces_stand_without_gaps_and_as_a_text(open_report):
    page = open_report(page_in("zh", *"两只狗在跑"))
    boxes = [word.bounding_box() for word in page.locator(".word[lang=zh]").all()]
    assert len(boxes) == 5
    for left, right in zip(boxes, boxes[1:], strict=False):
        assert abs(left["x"] + left["width"] - right["x"]) < 1 and left["width"] < 30
    assert page.locator(".sentence[lang=zh]").inner_text() == "两只狗在跑"
    assert page.locator("ol[lang]").count() == 0 and violations(page) == []


def test_words_run_from_the_right_even_if_the_first_is_latin(open_report):
    page = open_report(page_in("ar", "NBA", "\u0643\u0644\u0628", between=" "))
    first, second = (word.bounding_box() for word in page.locator(".word").all())
    assert first["x"] > second["x"] and page.locator(".references [dir=auto]").count() == 1
    page.get_by_label("Caption contains").fill("nba")
    assert page.get_by_text("1 of 1 images").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_word_brings_its_own_map_and_accessibility_has_no_violation(open_report, scheme):
    page = open_report(page_of(), scheme)
    assert page.locator(".word[aria-current]").inner_text() == "dog"
    page.keyboard.press("Tab")  # the first word
    page.keyboard.press("Escape")
    plain = brightness(page.locator(".crop"), GRID)
    for word, cell in enumerate(CENTRES):
        page.locator(".word").nth(word).hover()
        shown = brightness(page.locator(".crop"), GRID)
        assert np.unravel_index(shown.argmax(), GRID) == cell
        floor = np.delete(shown.ravel(), np.ravel_multi_index(cell, GRID))
        assert floor.max() < 0.75 * plain.min() and floor.min() > 0.5 * plain.max()
    page.locator(".word").nth(1).click()
    assert violations(page) == []


def test_maps_are_shown_as_is_chosen_and_the_choice_is_kept(open_report):
    page = open_report(page_of())
    words, boxes = page.locator(".words button"), page.locator(".dots rect")
    words.first.hover()
    before = brightness(page.locator(".crop"), GRID)
    page.get_by_label("Brightness").select_option("gated")
    assert brightness(page.locator(".crop"), GRID)[CENTRES[0]] < before[CENTRES[0]] - 20
    page.locator(".images button").nth(1).click()
    assert page.get_by_label("Brightness").input_value() == "gated"
    words.nth(1).hover()
    assert boxes.count() == 0
    page.get_by_role("button", name="Boxes").click()
    words.nth(1).hover()
    drawn, crop = boxes.first.bounding_box(), page.locator(".crop").bounding_box()
    assert abs(drawn["width"] - crop["width"] / 2) < 4
    assert abs(drawn["x"] - crop["x"] - crop["width"] / 2) < 4
    words.nth(2).hover()
    assert boxes.count() == 0
    words.nth(1).hover()
    page.get_by_role("button", name="Heat map").click()
    colours = page.eval_on_selector(
        "canvas", "c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"
    )
    height = page.eval_on_selector("canvas", "c => c.height")
    red = np.reshape(colours, (height, -1, 4))[..., 0]
    row, column = np.unravel_index(red.argmax(), red.shape)
    assert (row * GRID[0] // height, column * GRID[1] // red.shape[1]) == CENTRES[1]
    assert page.locator(".ramp.heat").count() == 1


def test_keys_and_play_reach_every_word_and_say_it(open_report):
    page = open_report(page_of())
    page.locator(".word").first.focus()
    said = []
    for key in ("ArrowRight", "End", "Home", "ArrowLeft"):
        page.keyboard.press(key)
        said.append(page.locator(".said").inner_text())
    assert [text.split("”")[0].strip("“") for text in said] == ["dog", "runs", "a", "a"]
    assert "probability 50 %" in said[0] and "gate β 0.90" in said[0]
    page.keyboard.press("Escape")
    assert page.locator(".looking").count() == 0
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("document.querySelector('.said').textContent.includes('runs')")
    page.get_by_role("button", name="Play").wait_for()


def test_drawn_locations_scatter_around_the_map_of_a_hypothesis_that_has_one(open_report):
    page = open_report(page_of())
    page.locator(".word").nth(1).click()
    button = page.get_by_role("button", name="Draw a location")
    for _ in range(40):
        button.click()
    assert "40 locations drawn" in page.locator(".said").inner_text()
    places = page.eval_on_selector_all(
        ".dots circle",
        "dots => dots.map(d => [+d.getAttribute('cy') | 0, +d.getAttribute('cx') | 0])",
    )
    assert sum(tuple(place) == CENTRES[1] for place in places) > 25
    page.get_by_role("button", name="a cat", exact=True).click()
    assert page.locator(".word").all_inner_texts() == ["a", "cat"]
    note = page.locator(".note").inner_text()
    assert "No maps" in note and "without the probabilities" in note


def test_images_are_sorted_and_searched_on_a_phone_too(open_report):
    page = open_report(page_of())
    page.get_by_label("Order").select_option("best")
    assert page.locator(".images span").first.inner_text() == "a dog runs 11"
    page.set_viewport_size({"width": 1280, "height": 800})
    boxes = [one.bounding_box() for one in page.locator(".strip, .chart").all()]
    assert len(boxes) == 2 and all(box["y"] + box["height"] < 400 for box in boxes)
    assert page.locator(".strip").inner_text().split() == ["BLEU-4", "21.0", "[19.8,", "22.4]"]
    assert not page.get_by_text("A note.").is_visible()
    page.get_by_text("All scores and notes").click()
    assert page.get_by_text("A note.").is_visible()
    page.get_by_label("Order").select_option("worst")
    assert page.locator(".images span").first.inner_text() == "a dog runs 0"
    page.get_by_label("Caption contains").fill("runs 7")
    assert page.locator(".images li").count() == 1
    assert page.get_by_role("status").filter(has_text="1 of 12").count() == 1
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.locator(".sentence").is_hidden() and page.locator(".joined").count() == 0
