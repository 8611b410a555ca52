"""A sentence is split in the browser as in Python."""

# ruff: noqa: F811

from pathlib import Path

import pytest

from sat_tf.text.words import tokenize
from tests.browser import browser, served_folder  # noqa: F401  (a fixture)

pytestmark = pytest.mark.slow

SENTENCES = """A man's dog|the dog\u2019s ball|a t-shirt|3.5 dogs|10:30 dogs|dogs &amp; men|5% dogs
\uff24\uff2f\uff27 a|a dog , and a man .|can\u0303on|a\u00addog|rock-n-roll|a dog/cat|the \u0130 dog
black - and - white|man 's dog|dog\u2010like|wom\u0430n|\ufb01eld|1,000 dogs|-3.5 degrees and .5 m
a 5 % rise|2\u00bd dogs|X\u00b2 \u2177|a_b c|1\ufe0f\u20e3 dog|\u039f\u0394\u039f\u03a3|'90s
--a-- b- -c
50%-off 3:45pm 1/2|\u0939\u0948\u0902 \u090f\u0915|Istanbul""".replace("\n", "|").split("|")
SPLIT = """async ([sentence, language]) => {
  const reader = document.createElement("textarea");
  reader.innerHTML = sentence;
  return (await import("./captioner.js")).tokenize(reader.value, language);
}"""


@pytest.mark.parametrize("language", ["en", "tr"])
def test_sentences_are_split_as_in_python(browser, language):
    page = browser.new_page()
    with served_folder(Path(__file__).parents[3] / "serving" / "web") as address:
        page.goto(f"{address}captioner.js")
        found = [page.evaluate(SPLIT, [sentence, language]) for sentence in SENTENCES]
    page.close()
    assert found == [tokenize(sentence, "words", language) for sentence in SENTENCES]
