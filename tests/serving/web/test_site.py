"""The page without a server: captioners that run in the browser, equal to Python's."""

# ruff: noqa: F811

import base64
import functools
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from sat_tf.images.pillow import EXIF_ORIENTATION
from sat_tf.inference.graphs import write_graphs
from sat_tf.inference.load import load
from serving import export_web
from tests.browser import browser, runtime, served_folder, violations, watched_pages  # noqa: F401  (fixtures)
from tests.digits.small_readers import publish
from tests.image_files import encode, noise, smooth
from tests.serving.export_fixtures import KINDS, good_images, write_run
from tests.serving.test_languages import vocabulary_of

pytestmark = pytest.mark.slow

ASK = """async () => {
  const page = await (await fetch("page.json")).json();
  const worker = new Worker("assets/worker.js");
  window.ask = (file, about = {}) => new Promise((done, fail) => {
    const id = (window.count = (window.count || 0) + 1), found = [];
    worker.onmessage = ({ data }) => {
      if (data.failed) fail(Error(data.failed));
      else if (data.captions) found.push(data);
      else if (data.done) done(found);
    };
    worker.postMessage({ id, page, file, ...about });
  });
}"""
CAPTION = """async ([text, type]) => {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const found = await ask(new File([bytes], "file", { type }));
  return found.map(({ model, captions }) => [model, captions.map(({ text, score, words }) => ({
    text, score, words: words.map(({ alpha, ...word }) => (
      { ...word, alpha: alpha ? [...alpha] : null })) }))]);
}"""


EXPLAIN = """async ([text, model, sentence]) => {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const [{ captions, unknown }] = await ask(new File([bytes], "file"), { model, sentence });
  return [unknown, captions[0].words.map(({ alpha, ...word }) => ({ ...word, alpha: [...alpha] }))];
}"""
WEIGHTS = """performance.getEntriesByType("resource")
  .filter(({ name }) => /models|litert/.test(name)).length"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Words and characters; soft, hard and no attention; consensus in one."""
    home = tmp_path_factory.mktemp("runs")
    words = {
        "soft": None,
        "hard": vocabulary_of("hi", "words"),
        "none": vocabulary_of("zh", "characters"),
    }
    made = [write_run(home / f"{kind}_run", KINDS[kind], vocabulary=v) for kind, v in words.items()]
    for run in made:
        write_graphs(run / "graphs", load(run))
    return made


@pytest.fixture(scope="module")
def site(runs, runtime, tmp_path_factory):
    out = tmp_path_factory.mktemp("host") / "below" / "site"
    argv = ["--run-dir", *map(str, runs), "--out", str(out)]
    assert export_web.main([*argv, "--runtime", str(runtime)]) == 0
    assert [path.name for path in out.parent.iterdir()] == ["site"]
    return out


@pytest.fixture(scope="module")
def address(site):
    with served_folder(site) as url:
        yield url


@pytest.fixture
def open_site(browser, address):
    with watched_pages(browser) as go:

        def open_page(*args, **options):
            page = go(address, *args, **options)
            page.locator(".word").first.wait_for(state="attached")
            return page

        yield open_page


def photograph(name="photo.png", content=None, kind="image/png") -> dict:
    content = encode(noise(), "PNG") if content is None else content
    return {"name": name, "mimeType": kind, "buffer": content}


def choose(page, **file) -> None:
    page.locator("#file").set_input_files(files=[photograph(**file)])


def captioned(page) -> None:
    """Waits for the captions of an own photograph."""
    page.locator(".samples [aria-pressed=true]").wait_for(state="detached")  # it has begun
    page.locator("#results[aria-busy=false] .word").first.wait_for()
    assert page.locator("#message").inner_text() == ""


def files() -> dict[str, bytes]:
    photo, every = smooth(), good_images()
    every |= {kind: encode(photo, kind) for kind in ("GIF", "BMP", "WEBP")}
    ramp = Image.fromarray(
        np.tile(np.linspace(0, 255, photo.width, dtype=np.uint8), (photo.height, 1))
    )
    photo.putalpha(ramp)
    every |= {"png_clear": encode(photo, "PNG"), "webp_clear": encode(photo, "WEBP", lossless=True)}
    every["png_size"] = encode(smooth().resize((301, 20)), "PNG")
    for turn in (3, 6):
        exif = Image.Exif()
        exif[EXIF_ORIENTATION] = turn
        every[f"jpeg_{turn}"] = encode(smooth(), "JPEG", exif=exif)
    return every


def test_captions_of_a_browser_equal_those_of_the_light_way(open_site, runs):
    light, page = {run.name: load(run) for run in runs}, open_site()
    page.evaluate(ASK)
    differ = []  # where rounding decides, of random weights
    for name, content in files().items():
        kind = f"image/{name.partition('_')[0]}"
        answers = page.evaluate(CAPTION, [base64.b64encode(content).decode(), kind])
        assert [model for model, _ in answers] == [run.name for run in runs]
        for model, found in answers:
            expected = light[model].beam(content)
            if [one["text"] for one in found] != [one.text for one in expected]:
                differ.append((name, model))
                continue
            for one, other in zip(found, expected, strict=True):
                words = one["words"]
                assert [word["text"] for word in words] == list(other.words)
                np.testing.assert_allclose(one["score"], other.score, atol=1e-5)
                log_probs = [word["log_prob"] for word in words]
                np.testing.assert_allclose(log_probs, other.log_probs, atol=3e-5)
                if other.alpha is not None and words:
                    maps = np.array([word["alpha"] for word in words])
                    np.testing.assert_allclose(maps, other.alpha.reshape(len(words), -1), atol=1e-5)
                    betas = [word["beta"] for word in words]
                    np.testing.assert_allclose(betas, other.beta, atol=1e-5)
    assert len(differ) <= 1, differ


def test_a_sentence_of_ones_own_is_explained_as_in_python(open_site, runs):
    light, page, content = load(runs[0]), open_site(), encode(smooth(), "PNG")
    page.evaluate(ASK)
    known = " ".join(light.vocabulary.words[4:6])
    for sentence in (f"{known.upper()}.", f"{known}, unicorn's {known}"):
        told, words = page.evaluate(
            EXPLAIN, [base64.b64encode(content).decode(), runs[0].name, sentence]
        )
        expected = light.explain(content, sentence)
        assert [word["text"] for word in words] == list(expected.words)
        assert told == list(expected.unknown)
        for name, values in (("log_prob", expected.log_probs), ("looking", expected.looking)):
            found = np.array([word[name] for word in words], float)  # None is NaN
            np.testing.assert_allclose(found, values, atol=1e-5)
        maps = np.array([word["alpha"] for word in words]).reshape(expected.alpha.shape)
        np.testing.assert_allclose(maps, expected.alpha, atol=1e-5)
    for sentence, says in (("...", "Write a sentence"), ("unicorns", "knows none of these words")):
        with pytest.raises(Exception, match=says):
            page.evaluate(EXPLAIN, [base64.b64encode(content).decode(), runs[0].name, sentence])


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_it_opens_with_a_sample_before_weights_and_works_offline_once_loaded(
    open_site, width, scheme
):
    page, asked = open_site(width, scheme, expected="Failed to load resource"), []
    assert page.locator(".samples [aria-pressed=true]").count() == 1
    assert page.evaluate(WEIGHTS) == 0
    page.evaluate("async () => void (await navigator.serviceWorker.ready)")
    page.reload()
    page.on("request", lambda request: asked.append(request.url))
    choose(page)
    captioned(page)
    assert {url.split("/")[2] for url in asked if url.startswith("http")} == {
        page.url.split("/")[2]
    }
    first = page.locator(".words").first.inner_text()
    assert page.locator("button.word").first.get_attribute("lang") == "en"
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert violations(page) == []
    assert page.context.cookies() == []
    page.wait_for_function("async () => !!(await caches.match('litert/index.js'))")
    page.context.set_offline(True)
    page.reload()
    choose(page)
    captioned(page)
    assert page.locator(".words").first.inner_text() == first
    page.locator(".samples button").last.click()
    page.locator(".samples [aria-pressed=true]").wait_for()


HUGE = encode(Image.new("1", (2**15, 2100)), "PNG")


def test_what_cannot_be_captioned_is_told_and_the_last_result_stays(open_site):
    page = open_site()
    heic = {
        "name": "photo.heic",
        "kind": "image/heic",
        "content": b"\0\0\0\x18ftypheic" + bytes(40),
    }
    shown = page.locator(".words").first.inner_text()
    for file, says in (
        ({"content": b"text"}, "cannot be read as an image"),
        ({"content": b""}, "The file is empty"),
        (heic, "does not read HEIC"),
        ({"content": HUGE}, "32768 x 2100 pixels, more than are read"),
    ):
        choose(page, **file)
        page.locator("#message", has_text=says).wait_for()
        assert page.locator(".words").first.inner_text() == shown
    choose(page)
    captioned(page)


def _answer_with(change: dict, route) -> None:
    route.fulfill(**change)


def test_a_download_that_breaks_off_or_is_of_other_bytes_is_told_and_tried_again(browser, address):
    context = browser.new_context(service_workers="block")  # whose requests Playwright leaves
    page = context.new_page()
    page.goto(address)
    for change, says in (
        ({"body": b"x"}, "is not the file that this page was made with"),
        ({"status": 404, "body": b""}, "is not there (status 404)"),
    ):
        page.route("**/models/step*", functools.partial(_answer_with, change))
        choose(page)
        page.locator("#message", has_text=says).wait_for()
        page.unroute("**/models/step*")
    page.route("**/models/step*", lambda route: route.abort())
    choose(page)
    page.locator("#message", has_text="cannot be loaded: is there a network?").wait_for()
    page.unroute("**/models/step*")
    choose(page)
    captioned(page)
    context.close()


def test_an_answer_that_comes_late_is_not_shown_for_another_photograph(browser, address):
    context, held = browser.new_context(service_workers="block"), []
    page = context.new_page()
    page.goto(address)
    page.locator(".samples [aria-pressed=true]").wait_for()
    page.route("**/samples/*.json", lambda route: held.append(route))
    with page.expect_request("**/samples/*.json"):
        page.locator(".samples button").last.click()
    choose(page)
    captioned(page)
    shown = page.locator(".words").first.inner_text()
    with page.expect_response("**/samples/*.json"):
        held[0].continue_()
    page.wait_for_timeout(200)  # for the page to hear of it
    assert page.locator(".words").first.inner_text() == shown
    context.close()


def test_a_second_tab_and_a_browser_without_simd_are_told(browser, address):
    context = browser.new_context()
    page, other = context.new_page(), context.new_page()
    for tab in (page, other):
        tab.goto(address)
    choose(page)
    captioned(page)
    choose(other)
    captioned(other)
    assert "open in another tab" in other.locator("#notes").inner_text()
    other.add_init_script("WebAssembly.validate = () => false")
    other.reload()
    other.locator("#notes", has_text="no WebAssembly SIMD").wait_for()
    choose(other)
    other.locator("#message", has_text="no WebAssembly SIMD").wait_for()
    other.locator(".samples button").last.click()
    other.locator("#results[aria-busy=false]").wait_for()
    context.close()


def test_a_site_takes_the_place_of_an_earlier_one_and_of_nothing_else(
    site, runtime, tmp_path, capsys
):
    reader = publish(tmp_path / "reader", "ram")
    argv = ["--digits", str(reader), "--runtime", str(runtime), "--out"]
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").touch()
    assert export_web.main([*argv, str(mine)]) == 2
    assert "a new folder, or one with such a page" in capsys.readouterr().err
    assert [path.name for path in mine.iterdir()] == ["thesis.tex"]
    before = shutil.copytree(site, tmp_path / "site")
    assert export_web.main([*argv, str(before)]) == 0
    assert json.loads((before / "page.json").read_text())["models"] == []
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "reader", "site"}
    notices = (before / "NOTICES.md").read_text()
    assert export_web.RUNTIME in notices and "Apache License" in notices


def test_a_runtime_of_another_digest_is_refused_and_without_npm_both_ways_are_told(
    tmp_path, monkeypatch
):
    other = tmp_path / "other.tgz"
    other.write_bytes(b"another runtime")
    with pytest.raises(
        ValueError, match=r"`runtime`: expected the archive of @litertjs/core@.*SHA-256"
    ):
        export_web.read_runtime(other)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="install npm, or give the file .* `--runtime`"):
        export_web.read_runtime(None)
