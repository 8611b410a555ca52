"""The words of METEOR: English as its normaliser splits it, and what a word can match."""

from __future__ import annotations

import functools
import importlib
import itertools
import re
from collections.abc import Callable, Collection
from typing import NamedTuple

from sat_tf.errors import TablesError
from sat_tf.scores.meteor_tables import (
    MappedLists,
    arabic_index,
    english_index,
    function_words,
    longer,
    read_prefixes,
    word_hash,
)

_LETTERS = (
    "A-Za-z\u0160\u0161\u017d\u017e\u0178\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u017e"
    "\u0400-\u04ff\u0500-\u0527\ua640-\ua66e\ua67e-\ua697\u1d00-\u1d7f"
)
_SPACES = " \t\n\r\f"
_PLAIN = re.compile("[a-z0-9 ]*").fullmatch
# Applied one after the other, each from left to right, to a text with a blank at either end.
_SPLITS = [
    (re.compile(pattern, re.ASCII), by)
    for pattern, by in (
        (rf"([^0-9{_LETTERS}\s.'`,\-\u2018\u2019])", r" \1 "),
        (r"(\.{2,})", r" \1 "),
        ("([^0-9]),([^0-9])", r"\1 , \2"),
        ("([0-9]),([^0-9])", r"\1 , \2"),
        ("([^0-9]),([0-9])", r"\1 , \2"),
        ("[`\u2018\u2019]", "'"),
        ("[\u201c\u201d]|''", ' " '),
        ("\u2013", "-"),
        ("--", "-"),
        # Hyphens inside words go, so that a part can match.
        (rf"([0-9{_LETTERS}.])-([0-9{_LETTERS}])", r"\1 \2"),
        (f"([^{_LETTERS}])'([^{_LETTERS}])", r"\1 ' \2"),
        (f"([^{_LETTERS}0-9])'([{_LETTERS}])", r"\1 ' \2"),
        (f"([{_LETTERS}])'([^{_LETTERS}])", r"\1 ' \2"),
        (f"([{_LETTERS}])'([{_LETTERS}])", r"\1 '\2"),
        ("([0-9])'(s)", r"\1 '\2"),
    )
]
_ANY_LETTER = re.compile(f"[{_LETTERS}]").search
_UNICODE_SPACES = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]+")


def split_english(text: str) -> list[str]:
    """Splits an English text as METEOR's normaliser does, into small letters.

    Hyphens and full stops of abbreviations inside words go (`well-known`: two words, `u.s.`: us);
    `it's` is `it` and `'s`; other signs are words.
    """
    if _PLAIN(text):
        return text.split()
    text = f" {text} "
    for pattern, by in _SPLITS:
        text = pattern.sub(by, text)
    words = re.findall(f"[^{_SPACES}]+", text)
    found = []
    for word, after in zip(words, [*words[1:], ""], strict=True):
        stem = word[:-1]
        if len(word) < 2 or word[-1] != "." or not stem.strip("."):
            found.append(word)
        elif "." in stem and _ANY_LETTER(stem):
            found.append(word.replace(".", ""))
        elif _keeps_stop(stem, after):
            found.append(word)
        else:
            found += [stem, "."]
    text = _UNICODE_SPACES.sub(" ", " ".join(found))
    return re.findall(f"[^{_SPACES}]+", text.lower())


def _keeps_stop(word: str, after: str) -> bool:
    numbers_alone = prefixes().get(word)
    if numbers_alone is False or re.match("[a-z]", after):
        return True
    return bool(numbers_alone and re.match("[0-9]", after))


prefixes = functools.cache(read_prefixes)


class Word(NamedTuple):
    """A word and what it can match.

    Attributes:
        key: Java's hash of it: METEOR takes words with the same for the same.
        stem: The same of its stem.
        meanings: Its sets of synonyms.
        function: 1 for a function word, else 0.
        hash: For phrases.
    """

    key: int
    stem: int
    meanings: frozenset[int]
    function: int
    hash: int


def java_hash(text: str) -> int:
    """Computes Java's hash of a text: 31 h + c over UTF-16 units c, modulo 2^32, without a sign."""
    found = 0
    if text.isascii():
        for code in text.encode():
            found = 31 * found + code
        return found & 0xFFFFFFFF
    units = text.encode("utf-16-le", "surrogatepass")
    for place in range(0, len(units), 2):
        found = 31 * found + units[place] + 256 * units[place + 1]
    return found & 0xFFFFFFFF


class Lexicon:
    """The words of a language with its tables; words and phrases that were seen stay known.

    Args:
        language: English name of the language, as METEOR's tables have it.
        modules: Number of ways to match: exact, stem, synonym, paraphrase.

    Raises:
        TablesError: Tables are missing or cannot be indexed.
    """

    def __init__(self, language: str, modules: int) -> None:
        self._function = function_words()
        self._stems = _stems(language) if modules > 1 else None
        self._synonyms = _Synonyms() if modules > 2 else None
        self._paraphrases = MappedLists(english_index(), "paraphrases") if modules > 3 else None
        self._words: dict[str, Word] = {}
        self._phrases: dict[int, frozenset[int] | None] = {}

    def word(self, text: str) -> Word:
        """Returns a word."""
        if (found := self._words.get(text)) is None:
            key = java_hash(text)
            found = self._words[text] = Word(
                key,
                self._stems(text) if self._stems else key,
                self._synonyms.meanings(text) if self._synonyms else _NONE,
                int(text.lower() in self._function),
                word_hash(text.encode("utf-8", "surrogatepass")) if self._paraphrases else 0,
            )
        return found

    def paraphrases(self, words: list[Word]) -> list[tuple[int, int, frozenset[int]]]:
        """Lists phrases of a text that have paraphrases: start, end, hashes of the paraphrases."""
        if self._paraphrases is None:
            return []
        known, found = self._phrases, []
        for start in range(len(words)):
            phrase = 0
            for end in range(start, len(words)):
                phrase = longer(phrase, words[end].hash)
                if phrase in known:
                    others = known[phrase]
                else:
                    numbers = self._paraphrases.get(phrase)
                    known[phrase] = others = None if numbers is None else frozenset(numbers)
                if others is None:
                    break
                if others:
                    found.append((start, end + 1, others, phrase))
        return found

    def in_order(self, phrase: int, some: Collection[int]) -> Collection[int]:
        if len(some) < 2:
            return some
        ordered = self._paraphrases.get(phrase)
        return sorted(some, key=ordered.index)


_NONE: frozenset[int] = frozenset()


# METEOR's stemmers are of 2010. Letters that later ones treat differently, and one to stand in for
# them that both treat as METEOR's do the letter: a vowel, or none.
_STAND_INS = {
    "french": ("[\u00eb\u00ef]", "\u00fb"),
    "hungarian": ("[\u0151\u0171]", "\ue000"),
    "portuguese": ("(?<=u)\u00e7(?=\u00e3o$|\u00f5es$)", "\ue000"),
    "russian": ("\u0451", "\ue000"),
}


def _stems(language: str) -> Callable[[str], int]:
    """Returns what computes the hash of a word's stem, of its commonest one in Arabic."""
    if language == "arabic-buckwalter-reduced":
        lists = MappedLists(arabic_index(), "stems")

        def look_up(word: str) -> int:
            own = word_hash(word.encode("utf-8", "surrogatepass"))
            return (lists.get(own) or [own])[0]

        return look_up
    stem = _stemmer(language)
    return lambda word: java_hash(stem(word))


def _stemmer(language: str) -> Callable[[str], str]:
    """Returns what finds the stem of a word, such as METEOR's."""
    try:
        module = importlib.import_module(f"snowballstemmer.{language}_stemmer")
    except ImportError as error:
        raise TablesError("METEOR's stems need snowballstemmer 2.") from error
    stemmer = getattr(module, f"{language.capitalize()}Stemmer")()
    if language == "finnish":
        # In the program no ending matches that has a condition.
        endings, find, stemmer.never = type(stemmer).a_6, stemmer.find_among_b, lambda: False
        free = [
            type(one)(one.s, one.substring_i, one.result, one.method and "never") for one in endings
        ]
        stemmer.find_among_b = lambda some: find(free if some is endings else some)
    stem = stemmer.stemWord
    if language == "german":
        return lambda word: _with_double_s(word, stem(word))
    if language not in _STAND_INS:
        return stem
    pattern, stand_in = _STAND_INS[language]
    letters = re.compile(pattern).sub

    def stem_by_stand_in(word: str) -> str:
        changed = letters(stand_in, word)
        if changed == word:
            return stem(word)
        return "".join(
            own if now == stand_in else now
            for own, now in itertools.zip_longest(word, stem(changed))
            if now
        )

    return stem_by_stand_in


def _with_double_s(word: str, stem: str) -> str:
    """Returns the stem of `Ergebnisse` with the s that later stemmers drop."""
    return stem + "s" if stem.endswith("nis") and word[len(stem) : len(stem) + 2] == "se" else stem


class _Synonyms:
    """WordNet's sets of synonyms, those of a word's base forms among them."""

    # WordNet's rules of detachment: nouns, verbs, adjectives.
    _ENDINGS = (
        *(("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh")),
        *(("men", "man"), ("ies", "y"), ("s", ""), ("ies", "y"), ("es", "e"), ("es", "")),
        *(("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")),
        *(("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    )

    def __init__(self) -> None:
        self._synsets = MappedLists(english_index(), "synsets")
        self._exceptions = MappedLists(english_index(), "exceptions")

    def meanings(self, word: str) -> frozenset[int]:
        """Returns the sets of synonyms that a word is in, or its base form."""
        own = self._of(self._synsets, word) or []
        irregular = self._of(self._exceptions, word)
        return frozenset(own).union(self._of_base(word) if irregular is None else irregular)

    def _of_base(self, word: str) -> Collection[int]:
        if len(word) < 3 or word.endswith("ss"):
            return ()
        for ending, instead in self._ENDINGS:
            if word.endswith(ending):
                base = word.removesuffix(ending) + instead
                if (found := self._of(self._synsets, base)) is not None:
                    return found
        return ()

    @staticmethod
    def _of(lists: MappedLists, word: str) -> list[int] | None:
        return lists.get(word_hash(word.encode("utf-8", "surrogatepass")))
