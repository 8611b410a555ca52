"""The rules that split captions, in the scripts that they are for."""

import unicodedata

import pytest

from sat_tf.text.detokenize import join, joining
from sat_tf.text.vocabulary import Vocabulary
from sat_tf.text.words import check_language, default_unit, tokenize


@pytest.mark.parametrize(
    ("language", "caption", "words"),
    [
        ("en", "A Dog, running !", "a dog running"),
        ("en", "dog.The cat/bird_fish", "dog the cat bird fish"),
        ("en", "a t-shirt \u2010 a t\u2011shirt -- x--y -z-", "a t-shirt a t-shirt x y z"),
        ("en", "the man\u2019s 'red' hat", "the man's red hat"),
        ("en", "a man 's hat , they 'll wave ' '", "a man 's hat they 'll wave"),
        ("en", "2 dogs & 3 cats \U0001f415\ufe0f", "2 dogs 3 cats"),
        ("en", "3.5 cm, 1,000 at 10:30. 1/2 of 50% .5", "3.5 cm 1,000 at 10:30 1/2 of 50% .5"),
        ("en", "5 % of 3. -5", "5 % of 3 -5"),
        ("en", "Rock &amp; roll &lt;3&#39;s", "rock roll 3's"),
        ("en", "\u0301\u0302 \u0301 .,!? \t\n", ""),
        ("es", "\u00abUn caf\u00e9\u00bb \u2014 \u00bfs\u00ed?", "un caf\u00e9 s\u00ed"),
        ("en", "soft\u00adhyphen\u00a0wide\u3000\u6587", "softhyphen wide \u6587"),
        ("tr", "\u0130ki I\u015eIKLI %50", "iki \u0131\u015f\u0131kl\u0131 %50"),
        ("az", "I\u0307nci QIZ", "inci q\u0131z"),
        ("tt-Latn", "I\u015eIQ \u0130t", "\u0131\u015f\u0131q it"),
        ("en", "\u0130stanbul", "istanbul"),
        ("ca", "col\u00b7legi \u00b7 a", "col\u00b7legi a"),
        ("bo", "བཀྲ\u0f0bཤིས\u0f0d", "བཀྲ\u0f0bཤིས"),
        ("hi", "\u0915\u094d\u0937\u093f!", "\u0915\u094d\u0937\u093f"),
        ("fa", "\u0628\u200c\u0647\u0627", "\u0628\u200c\u0647\u0627"),
        ("ar", "NBA \u200fكلب\u200e 23", "nba كلب 23"),
        ("uk", "\u0437\u2032\u0457\u0437\u0434", "\u0437'\u0457\u0437\u0434"),
        ("zh", "\u4e24\u53ea \u72d7\u3002", "\u4e24\u53ea \u72d7"),  # as their owner split them
    ],
)  # fmt: skip
def test_words_are_letters_marks_and_digits(language, caption, words):
    assert tokenize(caption, "words", language) == words.split()
    decomposed = unicodedata.normalize("NFD", caption)
    assert tokenize(decomposed, "words", language) == words.split()


@pytest.mark.parametrize("unit", ["words", "characters"])
@pytest.mark.parametrize(
    "caption", ["A man 's T-Shirt , it\u2019s 'big' !", "\u03a3\u0391\u03a3 \u0130x \u1e9e"]
)
def test_tokens_of_joined_tokens_are_the_same_tokens(caption, unit):
    tokens = tokenize(caption, unit)
    assert tokenize((" " if unit == "words" else "").join(tokens), unit) == tokens


@pytest.mark.parametrize(
    ("caption", "text", "count"),
    [
        ("\u9ad83.5\u7c73\u7684\u5854\u3002", "\u9ad83.5\u7c73\u7684\u5854", 7),
        ("\u67093\u30015\u53ea", "\u67093 5\u53ea", 5),
        ("\u4e00 \u53ea \u72d7", "\u4e00\u53ea\u72d7", 3),
        ("\u0915\u094d\u0937\u093f A", "\u0915\u094d\u0937\u093f a", 3),
        (" A  b. ", "a b", 3),
    ],
)
def test_characters_are_grapheme_clusters_that_keep_numbers(caption, text, count):
    found = tokenize(caption, "characters", "zh")
    assert join(found, *joining("characters")) == text and len(found) == count
    assert tokenize(text, "characters", "zh") == found


def test_languages_without_spaces_have_characters():
    codes = ("zh-Hans", "ja", "th", "my-MM", "jv-Java")
    assert {default_unit(code) for code in codes} == {"characters"}
    assert {default_unit(code) for code in ("de", "ko", "th-Latn", "zh-Latn-pinyin")} == {"words"}


def test_spaces_vanish_beside_letters_of_scripts_without_them_but_not_in_korean():
    rule = joining("words", "zh")
    shirt = ["\u7a7f", "nba", "all", "star", "\u7403\u8863"]
    assert join(shirt, *rule) == "\u7a7fnba all star\u7403\u8863"
    assert join(["\u7f8e", "\ub300"], *joining("words", "ko")) == "\u7f8e \ub300"
    assert join(["\u0e27", "\u0e51\u0e50", "\u0e52", "3"], *rule) == "\u0e27\u0e51\u0e50 \u0e52 3"


@pytest.mark.parametrize("unit", ["words", "characters"])
def test_words_of_boxes_have_spans_among_any_tokens(unit):
    caption = "\u4e24\u53ea \u72d7 NBA 3.5"
    vocabulary = Vocabulary.from_captions([caption], 1, unit=unit, language="zh")
    found = vocabulary.tokenize(caption)
    assert vocabulary.base_words(caption) == ["\u4e24", "\u53ea", "\u72d7", "nba", "3.5"]
    for word, first, last in vocabulary.places(caption):
        assert word in vocabulary.join(found[first : last + 1])


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("sp", "expected es, the code of the language, got 'sp'"),
        ("zh_Hans", "expected zh-Hans, with a hyphen"),
        ("English", "expected a code such as en, de or zh-Hans"),
        ("", "expected a code such as"),
    ],
)
def test_a_language_is_a_code(code, message):
    for right in ("en", "pt-BR", "zh-Hans", "es-419", "sr-Latn-RS"):
        check_language(right)
    with pytest.raises(ValueError, match=message):
        check_language(code)
