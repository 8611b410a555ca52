"""Captions as they are shown: in one line, in notebooks, in files."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from sat_tf.inference.captions import Caption
from sat_tf.inference.figures import attention_figure


@pytest.fixture
def caption() -> Caption:
    alpha = np.random.default_rng(0).dirichlet(np.ones(4), 2).reshape(2, 2, 2)
    image = np.full([32, 32, 3], 90, np.uint8)
    zeros = np.zeros(2, np.float32)
    return Caption("a <dog>", ("a", "<dog>"), -1.256, -2.5, zeros, alpha, zeros, image=image)


def test_a_caption_is_printed_in_one_line(caption):
    assert repr(caption) == "Caption('a <dog>', score=-1.26)"


def test_the_figure_is_that_of_the_image_and_the_maps(caption, tmp_path, monkeypatch):
    maps = caption.alpha, caption.beta
    expected = attention_figure(caption.image, caption.words, *maps, title="a <dog>")
    np.testing.assert_array_equal(caption.figure(), expected)
    caption.save(tmp_path / "caption.png")
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "caption.png")), expected)
    shown = []
    monkeypatch.setattr(Image.Image, "show", lambda image: shown.append(np.asarray(image)))
    caption.show()
    np.testing.assert_array_equal(shown, [expected])
    html = caption._repr_html_()
    assert 'alt="a &lt;dog&gt;"' in html
    content = base64.b64decode(re.search(r"base64,([^\"]+)", html)[1])
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(content))), expected)


def test_what_cannot_be_drawn_says_so(caption, tmp_path):
    with pytest.raises(ValueError, match=r"`path`: expected a file named \*.png or \*.jpg"):
        caption.save(tmp_path / "caption.gif")
    bare = Caption("a dog", ("a", "dog"), 0.0, 0.0, np.zeros(2), None, None)
    assert bare._repr_html_() == '<p dir="auto" lang="">a dog</p>'
    with pytest.raises(ValueError, match="caption an image"):
        bare.show()
