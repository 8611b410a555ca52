"""Splits captions into tokens, which `detokenize` joins again."""

from __future__ import annotations

import bisect
import html
import itertools
import re
import unicodedata
from collections.abc import Sequence

from sat_tf.text.detokenize import Unit, has_closed, join, joining, primary
from sat_tf.util.errors import invalid_value

_CHINESE = ("zh", "yue", "wuu", "nan", "hak", "gan", "hsn", "cdo", "cmn", "lzh")
_BY_CHARACTER = {*_CHINESE, "ja", "th", "lo", "km", "my", "bo", "dz", "shn", "mnw", "ii"}
_SCRIPTS_BY_CHARACTER = {"java", "bali", "hani", "hans", "hant", "jpan"}
_DOTLESS, _DOTLESS_LATIN = {"tr", "az", "crh", "gag"}, ("tt-latn", "kk-latn")
_LANGUAGE_TAG = re.compile(
    r"[a-z]{2,3}(-[a-z]{4})?(-([a-z]{2}|[0-9]{3}))?(-([0-9a-z]{5,8}|[0-9][0-9a-z]{3}))*", re.I
)
_MEANT = {
    **{"sp": "es", "jp": "ja", "cn": "zh", "kr": "ko", "gr": "el", "cz": "cs", "dk": "da"},
    **{"ua": "uk", "kz": "kk", "iw": "he", "cmn": "zh", "eng": "en", "deu": "de", "ger": "de"},
    **{"fra": "fr", "fre": "fr", "spa": "es", "ita": "it", "por": "pt", "rus": "ru", "zho": "zh"},
    **{"chi": "zh", "jpn": "ja", "kor": "ko", "ara": "ar"},
}
"""Countries, and longer codes, that people write for a language: its code."""


def check_language(code: str, argument: str = "language", kind: str = "argument") -> None:
    """Checks the form of a language code (BCP 47): en, de, pt-BR, zh-Hans.

    Raises:
        ValueError: It has another form, or is another name of a language with a code.
    """
    expected = "a code such as en, de or zh-Hans"
    if meant := _MEANT.get(code.lower()):
        expected = f"{meant}, the code of the language"
    elif _LANGUAGE_TAG.fullmatch(code):
        return
    elif _LANGUAGE_TAG.fullmatch(hyphenated := code.replace("_", "-")):
        expected = f"{hyphenated}, with a hyphen"
    raise invalid_value(argument, expected, repr(code), kind)


def default_unit(language: str) -> Unit:
    """Returns the tokens of a language: characters where its script has no spaces."""
    scripts = {*language.lower().split("-")}
    if scripts & _SCRIPTS_BY_CHARACTER:
        return "characters"
    if "latn" in scripts:
        return "words"
    return "characters" if primary(language) in _BY_CHARACTER else "words"


def lower_case(text: str, language: str = "") -> str:
    """Returns small letters; I has no dot in Turkish and other languages with a dotless i."""
    if language.lower().startswith(_DOTLESS_LATIN) or primary(language) in _DOTLESS:
        text = text.replace("I\u0307", "i").replace("\u0130", "i").replace("I", "\u0131")
    return text.lower().replace("i\u0307", "i")


_SIGNS = {
    **dict.fromkeys("\u2019\u02bc\uff07\u2018`\u00b4\u02bb\u201b\u2032", "'"),
    **dict.fromkeys("\u2010\u2011", "-"),
    **{sign: sign for sign in "'-\u200c\u200d\u00b7\u30fb\u0f0b\u05f4.,:/%"},
}
"""Signs that may belong to a word or a number, and the form that they take; `_WORD` says where."""
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")


class _Table(dict):
    """Table for `str.translate`, filled as characters turn up: every other sign is a space."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        category = unicodedata.category(char)
        if char in _SIGNS:
            found = _SIGNS[char]
        elif category in ("Me", "Cf") or _SELECTORS.match(char):
            found = ""  # not seen
        else:
            found = char if category[0] in "LMN" else " "
        self[code] = found
        return found


_TABLE = _Table()
_RUN = r"[^\s'\-\u200c\u200d\u00b7\u30fb\u0f0b\u05f4.,:/%]"  # letters, marks and digits
# Most words first: letters between spaces. Then a clitic that the data set has detached ("man 's"),
# words with hyphens, apostrophes and joiners inside, and numbers with their signs.
_WORD = re.compile(
    rf"(?!\s)(?:(?<!\S)[^\W\d_]+(?!\S)|(?<!\S)'[^\W\d_]{{1,2}}(?!\S)"
    rf"|(?:(?<![\w.,:/%'\-])-(?=\.?\d))?(?:(?<![\w.%])[.%](?=\d))?[^\W_]{_RUN}*"
    rf"(?:(?:['\-\u200c\u200d\u00b7\u30fb\u0f0b\u05f4]|(?<=\d)[.,:/](?=\d)|(?<=\d)%['\-]){_RUN}+)*"
    r"(?:(?<=\d)%)?|(?<=\d )%|(?<!\d)(?<!\d )%(?= \d))"
)


def tokenize(caption: str, unit: Unit = "words", language: str = "") -> list[str]:
    """Splits a caption into lower-case tokens without punctuation, in Unicode's NFC form.

    Keeps letters, marks and numbers. A hyphen or an apostrophe stays inside a word ("t-shirt",
    "man's") and at the head of a detached clitic ("man 's"), so that captions match their
    references in the metrics; `. , : /` stay between digits and `%` next to a number. Every other
    character is a word separator. HTML entities are read.

    Characters are grapheme clusters. One space, itself a token, separates words, but none is
    next to a letter of a script without spaces between words.

    Args:
        caption: Any text.
        unit: "words", as the caption separates them, or "characters".
        language: Language code of the caption, for its small letters.

    Returns:
        The tokens, none of them empty; an empty list if nothing is left.
    """
    text = html.unescape(caption) if "&" in caption else caption
    text = unicodedata.normalize("NFC", lower_case(text, language))
    words = _WORD.findall(text.translate(_TABLE))
    if unit == "words":
        return words
    return split_clusters(join(words, *joining("words", language)))


def base_words(caption: str, language: str = "") -> list[str]:
    """Splits a caption into the words that boxes count, whatever its tokens are.

    In scripts without spaces between words they are single characters.
    """
    words = tokenize(caption, "words", language)
    if caption.isascii():
        return words
    return [
        part for word in words for part in (split_clusters(word) if has_closed(word) else [word])
    ]


def spans(words: Sequence[str], tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Returns the first and the last token of each word of the same caption."""
    bare = [token.replace(" ", "") for token in tokens]
    ends = list(itertools.accumulate(map(len, bare)))
    text, found, end = "".join(bare), [], 0
    for word in words:
        start = max(text.find(word, end), end)
        end = start + len(word)
        last = bisect.bisect_left(ends, end)
        found.append((bisect.bisect_right(ends, start), min(last, len(tokens) - 1)))
    return found


def split_clusters(text: str) -> list[str]:
    """Splits a text into grapheme clusters, which its readers take for characters."""
    if text.isascii():
        return list(text)
    import regex  # captioning needs none

    return regex.findall(r"\X", text)
