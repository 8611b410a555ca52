"""The attention figure as SVG."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from sat_tf.figures.attention_svg import attention_svg

SVG = "{http://www.w3.org/2000/svg}"
GREY = np.full((30, 60, 3), 128, np.uint8)


def parse(**arguments) -> ElementTree.Element:
    return ElementTree.fromstring(attention_svg(GREY, **arguments))


def test_words_stay_text_and_each_has_a_tile():
    words = ["a", "<b> & c", "über"]
    alpha = np.ones((3, 2, 2))
    root = parse(words=words, alpha=alpha, beta=np.array([0.1, 0.5, 1.0]), title="A title")
    texts = [node.text for node in root.iter(f"{SVG}text")]
    assert [text for text in texts if text in words] == words
    assert texts[0] == "A title" and {"0.10", "0.50", "1.00"} <= set(texts)
    assert len(list(root.iter(f"{SVG}image"))) == 4
    width, height = (float(side) for side in root.get("viewBox").split()[2:])
    for image in root.iter(f"{SVG}image"):
        assert float(image.get("x")) + float(image.get("width")) <= width
        assert float(image.get("y")) + float(image.get("height")) <= height


def test_without_attention_the_image_alone_is_drawn():
    root = parse(words=["a", "dog"], alpha=None)
    assert len(list(root.iter(f"{SVG}image"))) == 1


def test_maps_that_do_not_fit_the_words_are_an_error():
    with pytest.raises(ValueError, match="alpha"):
        attention_svg(GREY, ["a"], np.ones((2, 2, 2)))


def test_rows_are_those_of_the_png_and_a_long_title_is_wrapped():
    words = [f"w{n}" for n in range(7)]  # with the image eight tiles: two rows of four
    title = "a man in a red shirt is standing in front of a white building " * 3
    root = parse(words=words, alpha=np.ones((7, 2, 2)), title=title)
    lefts = {tile.get("x") for tile in root.iter(f"{SVG}image")}
    assert len(lefts) == 4
    lines = [text.text for text in root.iter(f"{SVG}text") if text.get("text-anchor") == "start"]
    assert len(lines) > 1 and " ".join(lines).split() == title.split()
