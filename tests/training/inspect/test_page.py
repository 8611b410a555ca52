"""The page of `training.inspect`: images and texts in a folder that opens in any browser."""

import html.parser

import numpy as np
from PIL import Image

from training.inspect.page import PageEntry, write_page


class Links(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.sources, self.tags, self.text, self.spoken = [], [], "", []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        self.spoken += [tag] if ("lang", "ar") in attrs and ("dir", "auto") in attrs else []

    def handle_data(self, data):
        self.text += data


def entry(caption="a <dog>"):
    return PageEntry("a&b.jpg", (caption, "one <i>", "two"), np.full((4, 6, 3), 77, np.uint8))


def test_page_shows_escaped_text_in_its_language_and_images_that_exist(tmp_path):
    path = write_page(tmp_path, "Dev & co", [entry(), entry('<script>"x"</script>')])
    page = Links()
    page.feed(path.read_text("utf-8"))
    assert page.sources == ["images/000.png", "images/001.png"]
    assert "script" not in page.tags and "i" not in page.tags
    for text in ("Dev & co", "a&b.jpg", "a <dog>", "one <i>", "two"):
        assert text in page.text
    image = np.asarray(Image.open(tmp_path / page.sources[0]))
    np.testing.assert_array_equal(image, entry().image)
    page = Links()
    page.feed(write_page(tmp_path, "x", [entry()], ["A note."], [["a"]], "ar").read_text())
    assert page.spoken == ["h2", "img", "ul", "li", "li"]
    mixed = write_page(tmp_path, "x", [entry("NBA \u0643\u0644\u0628")], language="ar").read_text()
    assert '<h2 dir="rtl" lang="ar">NBA' in mixed
    page, table = Links(), [["", "train"], ["captions <b>", "5"]]
    page.feed(write_page(tmp_path, "x", [], table=table).read_text())
    assert (page.tags.count("th"), page.tags.count("td")) == (2, 2)
    assert "captions <b>" in page.text and "b" not in page.tags


def test_page_of_a_shorter_run_leaves_no_old_images(tmp_path):
    write_page(tmp_path, "x", [entry(), entry(), entry()])
    (tmp_path / "images" / "mine.png").write_bytes(b"")
    write_page(tmp_path, "x", [entry()])
    names = sorted(path.name for path in (tmp_path / "images").iterdir())
    assert names == ["000.png", "mine.png"]
