"""The page of `training.inspect`: images and texts in a file that opens in any browser."""

import base64
import html.parser
import io

import numpy as np
from PIL import Image

from training.data.examples import Example
from training.inspect.page import page_of


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
    return Example("a&b.jpg", np.full((4, 6, 3), 77, np.uint8), (caption, "one <i>", "two"))


def images_of(page: Links) -> list[np.ndarray]:
    found = [
        base64.b64decode(source.removeprefix("data:image/png;base64,")) for source in page.sources
    ]
    return [np.asarray(Image.open(io.BytesIO(content))) for content in found]


def test_page_shows_escaped_text_and_images():
    text = page_of("Dev & co", [entry(), entry('<script>"x"</script>')])
    page = Links()
    page.feed(text)
    assert "script" not in page.tags and "i" not in page.tags
    for text in ("Dev & co", "a&b.jpg", "a <dog>", "one <i>", "two"):
        assert text in page.text
    np.testing.assert_array_equal(images_of(page), [entry().image] * 2)


def test_captions_alone_are_in_their_language():
    page = Links()
    page.feed(page_of("x", [entry()], ["A note."], [["a"]], "ar"))
    assert page.spoken == ["h2", "img", "ul", "li", "li"]
    mixed = page_of("x", [entry("NBA \u0643\u0644\u0628")], language="ar")
    assert '<h2 dir="rtl" lang="ar">NBA' in mixed
    arabic = Example("a.jpg", entry().image, ("\u0643\u0644\u0628",) * 3)
    assert '<ul dir="rtl" lang="en">' in page_of("x", [arabic], language="en")


def test_page_with_a_table_escapes_its_cells():
    page, table = Links(), [["", "train"], ["captions <b>", "5"]]
    page.feed(page_of("x", [], table=table))
    assert (page.tags.count("th"), page.tags.count("td")) == (2, 2)
    assert "captions <b>" in page.text and "b" not in page.tags
