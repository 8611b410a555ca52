"""Tokenisation: the rules that split captions into tokens; `joining` has those that join them."""

from __future__ import annotations

import bisect
import functools
import html
import itertools
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec

from sat_tf.joining import (
    MARK,
    UNSPACED,
    Segmenter,
    Unit,
    has_closed,
    join,
    joining,
    primary,
    read_bytes,
)
from sat_tf.util.errors import installation, invalid_value

_APOSTROPHES = "'\u2019\u02bc\uff07"
_HYPHENS = "-\u2010\u2011"
# Persian and Indic scripts use these two inside words.
_JOINERS = "\u200c\u200d"
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
CAPITAL_NOUNS = ("de", "lb")
"""Languages whose nouns have a capital, in which captions regain it by default."""
RESPELT_ASCII = ("ca", "ga")
"""Languages with other spellings, or capitals, in ASCII."""
CHINESE = ["zh", "yue", "wuu", "nan", "hak", "gan", "hsn", "cdo", "cmn", "lzh"]
_UNSPACED = [*CHINESE, "ja", "th", "lo", "km", "my"]
# No breaker knows the words from `shn` on: ICU cuts Shan and Mon as if they were Burmese.
_BY_CHARACTER = {*CHINESE, "ja", "bo", "dz", "shn", "mnw", "nod", "khb", "tdd", "ii"}
_SCRIPTS_BY_CHARACTER = {"java", "bali", "hani", "hans", "hant", "jpan"}
_MARKS_OF_NUMBERS = str.maketrans("\u066b\u066c\u066a\u0609", ".,%\u2030")
_DOTLESS, _DOTLESS_LATIN = {"tr", "az", "crh", "gag"}, ("tt-latn", "kk-latn")
_IRISH = re.compile(r"(?<=\b[nt])(?=[AEIOU\u00c1\u00c9\u00cd\u00d3\u00da])")
_CHEROKEE = re.compile("[\uab70-\uabbf\u13f8-\u13fd]")


def default_unit(language: str) -> Unit:
    """Returns the tokens of a language: characters where words have neither spaces nor breakers."""
    scripts = {*language.lower().split("-")}
    if scripts & _SCRIPTS_BY_CHARACTER:
        return "characters"
    if "latn" in scripts:
        return "words"
    return "characters" if primary(language) in _BY_CHARACTER else "words"


def default_segmenter(language: str) -> Segmenter:
    """Returns what finds words: ICU in languages without spaces between them."""
    if "latn" in language.lower().split("-"):
        return "spaces"
    return "icu" if primary(language) in _UNSPACED else "spaces"


def lower_case(text: str, language: str = "") -> str:
    """Returns small letters, as the language has them.

    In Turkish and other languages with a dotless i, I gets no dot; the Irish "nAthair" is
    "n-athair"; Cherokee is written in its large letters.
    """
    if _is_dotless(language):
        text = text.replace("I\u0307", "i").replace("\u0130", "i").replace("I", "\u0131")
    elif primary(language) == "ga":
        text = _IRISH.sub("-", text)
    text = text.lower().replace("i\u0307", "i")
    return text if text.isascii() else _CHEROKEE.sub(lambda m: m[0].upper(), text)


def _is_dotless(language: str) -> bool:
    return language.lower().startswith(_DOTLESS_LATIN) or primary(language) in _DOTLESS


def comparable(token: str, language: str = "") -> str:
    """Folds a token so that spellings that differ by letter case or kind of digits are equal.

    A German ß is its capitals' SS, Greek goes without marks and Armenian "ev" has one form, as in
    their capitals.
    """
    token = token.casefold()
    if token.isascii():
        return token
    token = re.sub(r"\d", lambda found: str(unicodedata.decimal(found[0])), token)
    token = token.translate(_MARKS_OF_NUMBERS)
    if primary(language) in ("el", "grc"):
        token = re.sub("[\u0300-\u036f]", "", unicodedata.normalize("NFD", token))
    elif primary(language) in ("hy", "hyw"):
        token = token.replace("\u0565\u057e", "\u0565\u0582")
    return unicodedata.normalize("NFC", token)


# Signs that belong to words or numbers; where they do, `_word` says.
_INSIDE = "\u00b7\u30fb\u0f0b\u05f4"
_IN_NUMBERS = ".,:/\u066b\u066c"
_PERCENT = "%\u066a"
# Words written as signs, in Burmese and Sindhi.
_SIGNS = "\u104c\u104d\u104e\u104f\u06fd\u06fe"
_PER_MILLE = "\u2030\u0609"
_SAME = {
    # Okina, saltillo and what is typed for them.
    **dict.fromkeys("\u2018`\u00b4\u055a\u05f3\u02bb\u201b\u2032\ua78b\ua78c", "'"),
    **dict.fromkeys("\u05be\u058a", "-"),
    **dict.fromkeys("\u2044\u2215", "/"),
    "\u0f0c": "\u0f0b",
    "\u0140": "l\u00b7",
    "\u09f7": " ",  # typed for a danda
    # Tatweel and vowel signs of Arabic; Armenian marks of tone inside words; joiners of graphemes;
    # letters that are not seen.
    **dict.fromkeys("\u0640\u064b\u064c\u064d\u064e\u064f\u0650\u0651\u0652\u0670", ""),
    **dict.fromkeys("\u055b\u055c\u055e\u034f\u115f\u1160\u17b4\u17b5\u3164", ""),
    # Voicing marks of kana that stand apart.
    "\u309b": "\u3099",
    "\u309c": "\u309a",
    **{sign: sign for sign in f"{_SIGNS}{_INSIDE}{_IN_NUMBERS}{_PERCENT}{_PER_MILLE}*\u180e\u2116"},
}
# Ligatures, old and small forms, units in one sign, Roman numbers, radicals of Han, letters of
# formulas.
_COMPATIBLE = re.compile(
    "[\u00b5\u0132\u0133\u0149\u017f\u01c4-\u01cc\u01f1-\u01f3\u2080-\u2089\u2103\u2109\u2160-\u217f"
    "\u2f00-\u2fd5\u3200-\u33ff\ufe50-\ufe6b\U0001d400-\U0001d7ff]"
)
_PRESENTATION = re.compile("[\ufb00-\ufdff\ufe70-\uffee]")


def _fold(char: str) -> str:
    """Returns what a character of a caption becomes: itself, another, nothing or a space.

    Letters, marks and numbers stay; apostrophes and hyphens take their ASCII form; signs inside
    words stay for now; invisible format characters and variation selectors vanish; everything else
    becomes a space.
    """
    category = unicodedata.category(char)
    if char in _SAME:
        return _SAME[char]
    if char in _APOSTROPHES:
        return "'"
    if char in _HYPHENS:
        return "-"
    if char in _JOINERS:
        return char
    if category in ("Me", "Cf") or _SELECTORS.match(char):
        return ""
    return char if category[0] in "LMN" else " "


class _Table(dict):
    """Table for `str.translate` by `_fold`, filled as characters turn up; width forms fold, too."""

    def __missing__(self, code: int) -> str:
        char = text = chr(code)
        if _COMPATIBLE.match(char):
            text = unicodedata.normalize("NFKC", char).lower()
        elif _PRESENTATION.match(char):
            text = unicodedata.normalize("NFKC", char)
        self[code] = result = "".join(map(_fold, text))
        return result


_TABLE = _Table()
# A clitic that the data set has detached ("man 's").
_CLITIC = r"(?<!\S)'[^\W\d_]{1,2}(?!\S)"
# What languages have inside words.
_INSIDE_OF = {"fi": ":", "sv": ":", "de": ":*"}
# Languages in which an apostrophe that begins, or ends, a word is a letter.
_BEGINS = ("haw", "to", "sm", "ty", "rar", "tkl", "ha")
_ENDS = ("mt", "so", "el", "gd", "nv", "ch", "quc", "cak", "kek", "mam", "yua", "tzh", "tzo")
_ELIDED = "[cdjlmnst]|[jl]?[ou]?[rs]?qu|puisqu|[adns]?[aeu]?ll|dall|quell|quest|un|po"


@functools.cache
def _word(language: str) -> re.Pattern[str]:
    """Returns the pattern of words of a language.

    A word is a detached clitic, or runs of letters, marks and numbers joined by single hyphens,
    apostrophes, joiners or signs inside words; none starts with a mark. Numbers have their signs.
    """
    joiners, percent = f"{_JOINERS}\u180e", _PERCENT + _PER_MILLE
    inside = _INSIDE + _INSIDE_OF.get(language, "")
    run = rf"[^\s'\-*{joiners}{inside}{_IN_NUMBERS}{percent}]"
    clitic = _CLITIC
    if language in ("fr", "it", "ca", "oc"):
        clitic += rf"|(?<![\w'])(?:{_ELIDED})'(?!\S)"
    # Not the quotation mark of a single word.
    begins = r"(?:(?<!\w)'(?=[^\W\d_])(?![^\s']*'(?!\w)))?" if language in _BEGINS else ""
    ends = r"(?:'(?!\w))?" if language in _ENDS else ""
    between = rf"['\-{joiners}{inside}]|(?<=\d)[{_IN_NUMBERS}](?=\d)|(?<=\d)[{percent}]['\-]"
    if language == "el":  # "whatever", not "that"
        between += "|(?<=\\b[\u03bf\u03cc]),(?=\u03c4\u03b9)"
    # Most words first: letters between spaces.
    return re.compile(
        rf"(?!\s)(?:(?<!\S)[^\W\d_]+(?!\S)|{clitic}"
        rf"|(?:(?<![\w.,:/%'\-])-(?=\.?\d))?(?:(?<![\w.%])[.{percent}](?=\d))?{begins}"
        rf"(?:[^\W_]|[{_SIGNS}\u2116]){run}*(?:(?:{between}){run}+)*(?:(?<=\d)[{percent}])?{ends}"
        rf"|(?<=\d )[{percent}]|(?<!\d)(?<!\d )[{percent}](?= \d))"
    )


_NUMBER = re.compile(
    rf"((?:[a-z]+-?|-)?[.{_PERCENT}]?\d+(?:[{_IN_NUMBERS}-]\d+)*(?:[a-z]+|[{_PERCENT}{_PER_MILLE}])?)"
)
_ONE_KIND = re.compile(f"[{UNSPACED}{_INSIDE}]+|[^{UNSPACED}{_INSIDE}]+")
_GERSHAYIM = re.compile('(?<=[\u05d0-\u05ea])["\u201c\u201d](?=[\u05d0-\u05ea])')
_HEBREW_POINTS = re.compile("[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7]")
_SENTENCE_END = re.compile(r"[.!?:]\s")
_WORD_BREAK = re.compile(f"(?<=[{UNSPACED}])\u200b(?=[{UNSPACED}])")


def tokenize(
    caption: str,
    unit: Unit = "words",
    language: str = "",
    segmenter: Segmenter = "spaces",
) -> list[str]:
    """Splits a caption into lower-case tokens without punctuation, in Unicode's NFC form.

    Keeps letters, marks and numbers. A hyphen or an apostrophe stays inside a word ("t-shirt",
    "man's") and at the head of a detached clitic ("man 's"), so that captions match their
    references in the metrics; `. , : /` stay between digits and `%` beside a number, as do the
    signs inside words of other scripts. Any other character separates words. HTML entities are
    read, width and presentation forms are folded, and Arabic goes without tatweel and vowel signs.

    Characters are grapheme clusters. One space, itself a token, separates words, but none stands
    beside a letter of a script without spaces between words.

    Args:
        caption: Any text.
        unit: "words", "characters", or "subwords": words, for `Vocabulary.encode` to take apart.
        language: Language code of the caption, for its small letters and its segmenter.
        segmenter: Finds words in scripts without spaces between them: "icu", "jieba" (Chinese) or
            "mecab" (Japanese); "spaces" takes the words that are given.

    Returns:
        The tokens, none of them empty; an empty list if nothing is left.

    Raises:
        ValueError: The segmenter is not installed.
    """
    words = _split(caption, language)
    if unit == "words":
        if segmenter == "spaces" or caption.isascii():
            return words
        return [part for word in words for part in _segment(word, segmenter, language)]
    text = join(words, *joining("words", language))
    return split_clusters(text) if unit == "characters" else text.split()


def _split(caption: str, language: str, lower: bool = True) -> list[str]:
    """Splits a caption at spaces and signs; without `lower` capitals stay."""
    text, code = html.unescape(caption) if "&" in caption else caption, primary(language)
    word = _word(code)
    ascii_alone = text.isascii() and "~" not in text and code not in RESPELT_ASCII
    if ascii_alone and not _is_dotless(language):
        return word.findall((text.lower() if lower else text).translate(_TABLE))
    text = unicodedata.normalize("NFC", lower_case(text, language) if lower else text)
    text = _WORD_BREAK.sub(" ", _GERSHAYIM.sub("\u05f4", text))
    if code == "he":
        text = _HEBREW_POINTS.sub("", text)
    from sat_tf.spellings import respelled  # most English captions do without

    text = respelled(text, code)
    return word.findall(unicodedata.normalize("NFC", text.translate(_TABLE)))


def base_words(caption: str, language: str = "") -> list[str]:
    """Splits a caption into the words whose places boxes name, whatever its tokens are.

    In scripts without spaces between words they are single characters.
    """
    words = tokenize(caption, "words", language)
    if caption.isascii():
        return words
    return [
        part for word in words for part in (split_clusters(word) if has_closed(word) else [word])
    ]


def spans(words: Sequence[str], tokens: Sequence[str], language: str = "") -> list[tuple[int, int]]:
    """Returns the first and the last token of each word of the same caption."""
    bare, names = [], ""
    for token in tokens:  # a character of several bytes is at its last
        text = read_bytes(names + token)
        names = "" if text else names + token
        bare.append(lower_case(text.replace(MARK, "").replace(" ", ""), language))
    ends = list(itertools.accumulate(map(len, bare)))
    text, found, end = "".join(bare), [], 0
    for word in words:
        start = max(text.find(word, end), end)
        end = start + len(word)
        last = bisect.bisect_left(ends, end)
        found.append((bisect.bisect_right(ends, start), min(last, len(tokens) - 1)))
    return found


def written_forms(
    captions: Iterable[str], words: Iterable[str], language: str = ""
) -> dict[str, str]:
    """Finds the commonest written form of words inside sentences, where capitals mean something.

    Args:
        captions: Captions as written.
        words: The words, in small letters.
        language: Language code.

    Returns:
        Word -> its written form, where that is another one.
    """
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    for caption in captions:
        if caption.isupper():
            continue
        for sentence in _SENTENCE_END.split(caption):
            for form in _split(sentence, language, lower=False)[1:]:
                forms[lower_case(form, language)][form] += 1
    # A tie goes to small letters.
    best = {w: max([w, *forms[w]], key=forms[w].__getitem__) for w in words if w in forms}
    return {word: form for word, form in best.items() if form != word}


def split_clusters(text: str) -> list[str]:
    """Splits a text into grapheme clusters, what its readers take for characters."""
    if text.isascii():
        return list(text)
    import regex  # captioning needs none

    return regex.findall(r"\X", text)


_PACKAGES = {"icu": "icu4py", "jieba": "jieba", "mecab": "fugashi", "subwords": "sentencepiece"}


def check_extra(name: str, argument: str, kind: str = "argument") -> None:
    """Checks that what a segmenter, or `subwords`, needs is installed.

    Raises:
        ValueError: It is not; the message names the package and the extra.
    """
    package = _PACKAGES.get(name)
    if package and find_spec(package) is None:
        expected = f"{package} to be installed (`{installation(name)}`), or other tokens"
        raise invalid_value(argument, expected, repr(name), kind)


def _segment(word: str, segmenter: Segmenter, language: str) -> list[str]:
    """Splits what has no spaces into words; numbers and names with one stay whole."""
    if not has_closed(word):
        return [word]
    parts = _NUMBER.split(word)
    cut = _segmenter(segmenter, primary(language))
    return [w for n, part in enumerate(parts) if part for w in ([part] if n % 2 else cut(part))]


@functools.cache
def _segmenter(name: Segmenter, language: str) -> Callable[[str], list[str]]:
    check_extra(name, "segmenter")
    if name == "icu":
        from icu4py.breakers import WordBreaker

        def cut(text: str) -> list[str]:
            return list(WordBreaker(text, language or "root")) if has_closed(text) else [text]

        # It leaves Latin letters with the Thai word beside them.
        return lambda text: sum(map(cut, _ONE_KIND.findall(text)), [])
    if name == "jieba":
        import jieba

        jieba.setLogLevel("WARNING")
        # Most of its words with Latin letters have capitals, as T恤 (T-shirt).
        return lambda text: [word.lower() for word in jieba.lcut(text.upper())]
    if name == "mecab":
        import fugashi

        tagger = fugashi.Tagger("-Owakati")
        return lambda text: tagger.parse(text).split()
    expected = '"spaces", "icu", "jieba" or "mecab"'
    raise invalid_value("segmenter", expected, repr(name))
