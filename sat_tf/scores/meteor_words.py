"""The words of METEOR: its tables, English as its normaliser splits it, what a word can match.

The tables are those of the installed pycocoevalcap, indexed once into files that are mapped: words
and phrases are found by a 64-bit hash in a sorted array, so that a score reads a few pages of files
instead of loading 270 MB of text.
"""

from __future__ import annotations

import bisect
import functools
import gzip
import hashlib
import importlib
import itertools
import json
import os
import re
import tempfile
import zipfile
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np


class TablesError(OSError):
    """METEOR's tables are missing, of another version, or cannot be indexed."""


# --- tables ---

_LAYOUT = 2  # of the index; another one is made anew
_MASK = (1 << 64) - 1
_FACTOR = 0x9E3779B97F4A7C15  # any odd number without a pattern
_JAR, _PARAPHRASES = "meteor-1.5.jar", "paraphrase-en.gz"
# Checksums (CRC-32) of the tables in pycocoevalcap 1.2: with others, scores are not METEOR 1.5's.
ENGLISH_TABLES = {
    "synonym/english.synsets": 0x6C990708,
    "synonym/english.exceptions": 0x7AD3F6EE,
    "nonbreaking/english.prefixes": 0x4E8B94BA,
    _PARAPHRASES: 0xAF15BEDE,
}


def word_hash(word: bytes) -> int:
    """Computes the 64-bit hash of a word, which is also that of the phrase of this one word."""
    return int.from_bytes(hashlib.blake2b(word, digest_size=8).digest(), "little")


def longer(phrase: int, word: int) -> int:
    """Computes the hash of a phrase with one more word, from the hashes of both."""
    return (phrase * _FACTOR + word) & _MASK


class MappedLists:
    """Lists of numbers by a 64-bit key, of `write_lists`, that the system loads in pages."""

    def __init__(self, folder: Path, name: str) -> None:
        arrays = (np.load(folder / f"{name}_{part}.npy", mmap_mode="r") for part in _PARTS)
        # Single numbers of a memoryview are much faster than NumPy's.
        self._keys, self._starts, self._stops, self._values = map(memoryview, arrays)

    def get(self, key: int) -> list[int] | None:
        """Returns the list of a key, or None."""
        place = bisect.bisect_left(self._keys, key)
        if place == len(self._keys) or self._keys[place] != key:
            return None
        return self._values[self._starts[place] : self._stops[place]].tolist()


_PARTS = ("keys", "starts", "stops", "values")


def write_lists(folder: Path, name: str, lists: Iterable[tuple[int, Sequence[int]]]) -> None:
    """Writes lists for `MappedLists`; one key's numbers keep their order."""
    keys, starts, values = array("Q"), array("I"), array("Q")
    for key, numbers in lists:
        keys.append(key)
        starts.append(len(values))
        values.extend(numbers)
    begin = np.array(starts, np.uint32)
    order = np.argsort(np.array(keys, np.uint64))
    stops = np.append(begin[1:], np.uint32(len(values)))
    parts = (np.array(keys, np.uint64)[order], begin[order], stops[order], np.array(values))
    for part, numbers in zip(_PARTS, parts, strict=True):
        np.save(folder / f"{name}_{part}.npy", numbers)


@functools.cache
def installed() -> Path:
    """Returns the folder of METEOR in the installed pycocoevalcap."""
    spec = find_spec("pycocoevalcap")
    for place in spec.submodule_search_locations if spec else ():
        if (Path(place) / "meteor" / _JAR).is_file():
            return Path(place) / "meteor"
    raise TablesError("METEOR's tables are not installed: `pip install pycocoevalcap`.")


def read_table(name: str) -> bytes:
    """Returns the content of one of METEOR's tables in UTF-8; a `TablesError` if it is missing."""
    folder = installed()
    try:
        with zipfile.ZipFile(folder / _JAR) as jar:
            return jar.read(name)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise TablesError(f"METEOR's table {name} in {folder} cannot be read: {error}.") from error


def function_words() -> frozenset[str]:
    """Returns METEOR's function words: the program takes the English ones for every language."""
    return frozenset(read_table("function/english.words").decode().splitlines())


def english_index() -> Path:
    """Returns the folder with synonyms, paraphrases and prefixes, made on first use in a minute.

    `synsets` and `exceptions` have the sets of meanings of a word; `paraphrases` has the hashes of
    the paraphrases of a phrase, an empty list for the beginning of a longer phrase.

    Raises:
        TablesError: Tables are missing or of another version, or the cache cannot be written.
    """
    cache = os.environ.get("SAT_TF_CACHE") or Path(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "sat_tf"
    )
    folder = Path(cache, "meteor", f"english-{_LAYOUT}")
    if folder.is_dir():
        return folder
    _check_version()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=folder.parent, prefix=".tmp", ignore_cleanup_errors=True
        ) as temporary:
            _write_english(Path(temporary))
            Path(temporary).chmod(0o755)
            os.replace(temporary, folder)
    except OSError as error:
        if not folder.is_dir():  # another process may have been faster
            raise TablesError(f"METEOR's tables cannot be indexed in {folder}: {error}.") from error
    return folder


def _check_version() -> None:
    folder = installed()
    with zipfile.ZipFile(folder / _JAR) as jar:
        found = {entry.filename: entry.CRC for entry in jar.infolist()}
    try:
        end = (folder / "data" / _PARAPHRASES).read_bytes()[-8:-4]
    except OSError as error:
        raise TablesError(f"METEOR's paraphrases are missing: {error}.") from error
    found[_PARAPHRASES] = int.from_bytes(end, "little")  # a gzip file ends with it
    for name, checksum in ENGLISH_TABLES.items():
        if found.get(name) != checksum:
            raise TablesError(
                f"METEOR's table {name} in {folder} is not that of version 1.5: "
                '`pip install --force-reinstall "pycocoevalcap==1.2"`.'
            )


def _write_english(folder: Path) -> None:
    synsets = {word: [*map(int, sets.split())] for word, sets in _pairs("synonym/english.synsets")}
    bases: dict[bytes, list[bytes]] = {}
    for base, forms in _pairs("synonym/english.exceptions"):
        for form in forms.split():
            bases.setdefault(form, []).append(base)
    meanings = (
        (form, {n for base in some for n in synsets.get(base, ())}) for form, some in bases.items()
    )
    write_lists(folder, "synsets", ((word_hash(word), sets) for word, sets in synsets.items()))
    write_lists(folder, "exceptions", ((word_hash(form), sorted(sets)) for form, sets in meanings))
    write_lists(folder, "paraphrases", _paraphrases())
    text = read_table("nonbreaking/english.prefixes").decode()
    lines = [line.split() for line in text.splitlines()]
    # Some keep their full stop before a number alone.
    prefixes = {line[0]: "#NUMERIC_ONLY#" in line for line in lines if line and line[0][0] != "#"}
    (folder / "prefixes.json").write_text(json.dumps(prefixes, ensure_ascii=False), "utf-8")


def _pairs(name: str) -> Iterable[tuple[bytes, bytes]]:
    """Yields the first and second line of every two."""
    lines = iter(read_table(name).splitlines())
    yield from zip(lines, lines, strict=True)


def _paraphrases() -> Iterable[tuple[int, list[int]]]:
    """Yields each phrase with its paraphrases, then the beginnings of phrases with none."""
    known = functools.cache(word_hash)
    phrases, beginnings = set(), set()
    with gzip.open(installed() / "data" / _PARAPHRASES) as file:
        rows = zip(file, file, file, strict=True)  # a probability (unused), phrase, paraphrase
        for phrase, same in itertools.groupby(rows, itemgetter(1)):
            *first, whole = _hashes(map(known, phrase.split()))
            beginnings.update(first)
            phrases.add(whole)
            yield whole, [_hashes(map(known, row[2].split()))[-1] for row in same]
    yield from ((key, ()) for key in sorted(beginnings - phrases))


def _hashes(words: Iterable[int]) -> list[int]:
    """Returns the hashes of a phrase's first word, its first two, and so on."""
    return [*itertools.accumulate(words, longer)]


@functools.cache
def prefixes() -> dict[str, bool]:
    """Returns the English abbreviations that keep their full stop; True if before numbers alone."""
    return json.loads((english_index() / "prefixes.json").read_text(encoding="utf-8"))


# --- words ---

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


class Word(NamedTuple):
    """A word and its possible matches.

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
        self._stem = _stemmer(language) if modules > 1 else lambda word: word
        self._synonyms = _Synonyms() if modules > 2 else None
        self._paraphrases = MappedLists(english_index(), "paraphrases") if modules > 3 else None
        self._words: dict[str, Word] = {}
        self._phrases: dict[int, frozenset[int] | None] = {}

    def word(self, text: str) -> Word:
        if (found := self._words.get(text)) is None:
            key = java_hash(text)
            found = self._words[text] = Word(
                key,
                java_hash(self._stem(text)),
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


def _stemmer(language: str) -> Callable[[str], str]:
    """Returns METEOR's stemmer of a language."""
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
