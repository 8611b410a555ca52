"""The page as a person meets it: a photograph in, maps on it; keys, a phone, failures."""

import numpy as np
import pytest
from PIL import Image

from tests.browser import brightness, browser, grey, violations, watched_pages  # noqa: F401  (a fixture, found by name)
from tests.serving.web.page_fixtures import listening, page_of, photograph
from tests.serving.web.scripted_model import GRID, PLACES, WORDS, ScriptedModel

pytestmark = pytest.mark.slow

UPLOADS = 6
FILE = {"name": "photo.jpg", "mimeType": "image/jpeg", "buffer": photograph()}


@pytest.fixture(scope="module")
def address():
    """Soft, hard and no attention side by side."""
    kinds = {kind: ScriptedModel(kind=kind) for kind in ("soft", "hard", "none")}
    with listening(page_of(facts={"about": ["It knows dogs that run."]}, **kinds)) as url:
        yield url


@pytest.fixture
def open_page(browser):  # noqa: F811
    """Opens the page; the first sample is captioned."""
    with watched_pages(browser) as go:

        def open_samples(*args, captioned=True, **options):
            page = go(*args, **options)
            page.locator(".samples img").first.wait_for()
            if captioned:
                caption(page)
            return page

        yield open_samples


def choose(page, file: dict | None = None) -> None:
    page.locator("#file").set_input_files(files=[file or FILE])


def upload(page) -> None:
    """Uploads a photograph, and waits until it is captioned."""
    before = page.locator(".stage img").first.get_attribute("src")
    choose(page)
    page.wait_for_function(
        "before => document.querySelector('.stage img').getAttribute('src') !== before", arg=before
    )
    caption(page)


def caption(page, column: int = 0):
    """The words of a column, once they are there."""
    words = page.locator(".column").nth(column).locator(".word")
    words.first.wait_for(state="attached")
    return words


def wait_for_message(page, text: str) -> None:
    page.locator("#message").filter(has_text=text).wait_for()


def brightest(page) -> tuple[int, int]:
    """The cell of the first column's grid that is the brightest."""
    return np.unravel_index(brightness(page.locator(".crop").first, GRID).argmax(), GRID)


def test_the_page_opens_with_a_captioned_sample_and_one_word_lit(open_page, address):
    page = open_page(address)
    assert page.locator(".samples [aria-pressed=true]").get_attribute("title") == "A skier"
    page.locator(".column.chosen .looking").wait_for()
    assert page.locator(".column.chosen .word[aria-current]").count() == 1
    assert page.locator("#about").inner_text() == "It knows dogs that run."
    spoken = page.locator("[lang=de]").evaluate_all("all => all.map((e) => e.className || e.alt)")
    assert {"word", "a dog runs"} <= set(spoken)  # the buttons stay English
    assert page.locator("button.word[lang=de]").all_inner_texts()[:3] == list(WORDS[0])
    assert page.locator("[lang=de]", has_text="Heat map").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_photograph_is_uploaded_and_every_word_shows_its_map(open_page, address, scheme):
    page = open_page(address, scheme=scheme)
    upload(page)
    words = caption(page)
    assert words.all_inner_texts() == list(WORDS[0])
    for word, place in enumerate(PLACES):
        words.nth(word).hover()
        assert brightest(page) == place
    before = page.locator(".stage img").first.evaluate("i => [i.naturalWidth, i.naturalHeight]")
    assert before == [120, 80]
    shown = grey(page.locator(".column.chosen .stage")).mean()
    page.keyboard.press("Escape")
    page.locator(".column.chosen .crop").evaluate("e => e.remove()")
    assert shown > 0.5 * grey(page.locator(".column.chosen .stage")).mean()
    assert "probability 50 %, brightest place 7.6 times the mean, gate β 0.50" in (
        page.locator(".said").first.inner_text()
    )


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_the_first_screen_shows_what_was_asked_for_without_a_violation(
    open_page, address, width, scheme
):
    page = open_page(address, width, scheme)
    words = page.locator(".column.chosen .words").bounding_box()
    assert words["y"] + words["height"] < (844 if width == 390 else 900)
    upload(page)
    page.wait_for_function("() => document.activeElement.id === 'results'")
    top = page.locator(".column.chosen .stage").bounding_box()
    assert 0 <= top["y"] < 500
    page.get_by_role("button", name="No attention").click()
    assert "has no attention" in page.locator(".column:visible .note").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    caption(page, 2).nth(1).click()
    page.locator("summary").first.click()
    assert violations(page) == []


def test_the_captioners_stand_side_by_side_and_light_a_word_together(open_page, address):
    page = open_page(address)
    names = page.locator(".switch button").all_inner_texts()
    assert names == ["Soft attention", "Hard attention", "No attention", "Side by side"]
    assert page.locator(".column:visible").count() == 1
    page.get_by_role("button", name="Side by side").click()
    boxes = [page.locator(".column").nth(n).bounding_box() for n in range(3)]
    assert len({box["y"] for box in boxes}) == 1
    caption(page, 0).nth(2).hover()
    lit = page.locator(".word[aria-current]")
    assert lit.all_inner_texts() == [WORDS[0][2]] * 3
    hard = page.locator(".column").nth(1)
    hard.get_by_role("button", name="Draw 20").click()
    assert "20 locations drawn from this map" in hard.locator(".said").inner_text()
    assert "has no attention" in page.locator(".column").nth(2).locator(".note").inner_text()
    assert page.locator(".legend").count() == 1


def test_what_is_shown_is_saved(open_page, address, browser, tmp_path):  # noqa: F811
    page = open_page(address)
    for button, name in (("picture", "caption.png"), ("page", "caption.html")):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Save as {button}").click()
        assert download.value.suggested_filename == name
        download.value.save_as(tmp_path / name)
    picture = Image.open(tmp_path / "caption.png").convert("HSV")
    assert picture.width == 4 * 320 + 5 * 20 and picture.height > 320  # a tile per word
    skier = [picture.crop((20 + 340 * n, 80, 340 + 340 * n, 300)) for n in range(4)]
    colour = [np.asarray(tile)[..., 1].mean() for tile in skier]
    assert max(colour[1:]) < 0.6 * colour[0]  # most of each tile is grey
    with watched_pages(browser, offline=True) as go:
        saved = go((tmp_path / "caption.html").as_uri())
        assert caption(saved).all_inner_texts() == list(WORDS[0])
        assert saved.locator(".switch button").first.inner_text() == "Soft attention"


FOCUSED = """(() => {
  const element = document.activeElement;
  return element.getAttribute("aria-label") || element.innerText;
})()"""


def test_the_keyboard_alone_reaches_everything(open_page, address):
    page, seen = open_page(address), []
    while "A skateboarder" not in seen:
        page.keyboard.press("Tab")
        seen.append(page.evaluate(FOCUSED))
        assert len(seen) < 20
    assert seen[0] == "Choose a file"
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.activeElement.id === 'results'")
    while page.evaluate(FOCUSED) not in WORDS[0]:
        page.keyboard.press("Tab")
        seen.append(page.evaluate(FOCUSED))
        assert len(seen) < 40
    page.keyboard.press("Home")
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


def test_a_photograph_is_dropped_or_pasted(open_page, address):
    page = open_page(address)
    for kind, width in (("drop", 120), ("paste", 140)):
        page.evaluate(DROP, [kind, list(photograph(width))])
        shown = f"() => document.querySelector('.stage img').naturalWidth === {width}"
        page.wait_for_function(shown)
    assert page.locator(".samples [aria-pressed=true]").count() == 0


def test_what_cannot_be_read_is_told_and_the_last_captions_stay(open_page, address):
    page = open_page(address, expected="status of 400")
    heic = b"\0\0\0\x18ftypheic" + bytes(40)
    for content, says in ((b"text", "none of the formats JPEG"), (heic, "HEIC")):
        choose(page, FILE | {"buffer": content})
        wait_for_message(page, says)
        assert caption(page).all_inner_texts() == list(WORDS[0])
    choose(page, FILE | {"buffer": bytes(6 * 2**20)})
    wait_for_message(page, "larger than 5 MB")
    upload(page)
    assert page.locator("#message").inner_text() == ""


def test_a_captioner_that_cannot_be_loaded_says_so_and_the_others_answer(open_page):
    models = {"soft": ScriptedModel(), "hard": ScriptedModel("hard", broken=True)}
    with listening(page_of(**models)) as url:
        page = open_page(url, expected="status of 500")
        page.get_by_role("button", name="hard").click()
        page.locator(".refused", has_text="its weights are gone").wait_for()


def test_photographs_in_a_row_leave_nothing_behind(open_page, address):
    page = open_page(address)
    counts = []
    for _ in range(UPLOADS):
        upload(page)
        for column in range(3):
            caption(page, column)
        page.locator("#results[aria-busy=false]").wait_for()
        counts.append(page.evaluate("document.querySelectorAll('*').length"))
    assert len(set(counts)) == 1


def test_a_sentence_of_ones_own_is_read_word_by_word_and_there_is_a_way_back(open_page):
    with listening(page_of(soft=(model := ScriptedModel()))) as url:
        page = open_page(url, expected="400")
        page.locator("#sentence").fill("unicorns")
        page.keyboard.press("Enter")
        wait_for_message(page, "It knows none of these words.")
        assert caption(page).all_inner_texts() == list(WORDS[0])  # what was there stays
        page.locator("#sentence").fill("Dogs fly")
        page.locator("#own button").first.click()
        page.locator(".word").filter(has_text="fly").wait_for()
        assert "“fly”" in page.locator(".note").inner_text()
        page.get_by_role("button", name="Back to its caption").click()
        page.locator(".word").filter(has_text="runs").wait_for()
        assert page.get_by_role("button", name="Back to its caption").count() == 0
    assert model.sentences == [None, "unicorns", "Dogs fly"]


def test_a_photograph_unlike_the_training_data_is_marked_above_its_caption(open_page):
    with listening(page_of(soft=ScriptedModel(familiarity=0.001))) as url:
        page = open_page(url)
        level, words = (page.locator(name).bounding_box() for name in (".level.unlike", ".words"))
        assert "expect this caption to be wrong" in page.locator(".level").inner_text()
        assert level["y"] + level["height"] <= words["y"]


def test_two_files_are_both_captioned(open_page, address):
    page = open_page(address)
    files = [
        FILE | {"name": n, "buffer": photograph(w)} for n, w in (("a.jpg", 120), ("b.jpg", 140))
    ]
    page.locator("#file").set_input_files(files=files)
    for name, width in (("a.jpg", 120), ("b.jpg", 140)):
        page.get_by_role("button", name=name).click()
        shown = f"() => document.querySelector('.stage img').naturalWidth === {width}"
        page.wait_for_function(shown)
        assert caption(page).all_inner_texts() == list(WORDS[0])
