"""METEOR's tables: those of the installed pycocoevalcap, indexed once into files that are mapped.

Words and phrases are found by a 64-bit hash in a sorted array, so that a score reads a few pages
of a file instead of loading 270 MB of text.
"""

from __future__ import annotations

import bisect
import functools
import gzip
import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from array import array
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from sat_tf.errors import TablesError
from sat_tf.files import default_cache_dir, write_json

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
ARABIC_TABLES = {"stem/arabic-buckwalter-reduced.gz": 0x113B82F2}


def word_hash(word: bytes) -> int:
    """Computes the 64-bit hash of a word, which is also that of the phrase of this one word."""
    return int.from_bytes(hashlib.blake2b(word, digest_size=8).digest(), "little")


def longer(phrase: int, word: int) -> int:
    """Computes the hash of a phrase with one more word, from the hashes of both."""
    return (phrase * _FACTOR + word) & _MASK


class MappedLists:
    """Lists of numbers by a 64-bit key, of `write_lists`, that the system loads by the page."""

    def __init__(self, folder: Path, name: str) -> None:
        arrays = (np.load(folder / f"{name}_{part}.npy", mmap_mode="r") for part in _PARTS)
        # Single numbers of a memoryview are much faster than NumPy's.
        self._keys, self._starts, self._stops, self._values = map(memoryview, arrays)

    def get(self, key: int) -> list[int] | None:
        """Returns the list of a key, None if there is no such key."""
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
    """Returns the content of one of METEOR's tables; words are UTF-8.

    Raises:
        TablesError: It is missing.
    """
    folder = installed()
    try:
        with zipfile.ZipFile(folder / _JAR) as jar:
            content = jar.read(name)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise TablesError(f"METEOR's table {name} in {folder} cannot be read: {error}.") from error
    return gzip.decompress(content) if name.endswith(".gz") else content


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
    return _index("english", ENGLISH_TABLES, _write_english)


def arabic_index() -> Path:
    """Returns the folder with the hashes of each Arabic word's stems; errors as `english_index`."""
    return _index("arabic", ARABIC_TABLES, _write_arabic)


def _index(language: str, tables: dict[str, int], write) -> Path:
    folder = default_cache_dir() / "meteor" / f"{language}-{_LAYOUT}"
    if folder.is_dir():
        return folder
    _check_version(tables)
    temporary = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".tmp"))
        write(temporary)
        temporary.chmod(0o755)
        os.replace(temporary, folder)
    except OSError as error:
        if not folder.is_dir():  # another process may have been faster
            raise TablesError(f"METEOR's tables cannot be indexed in {folder}: {error}.") from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _check_version(tables: dict[str, int]) -> None:
    folder = installed()
    with zipfile.ZipFile(folder / _JAR) as jar:
        found = {entry.filename: entry.CRC for entry in jar.infolist()}
    if _PARAPHRASES in tables:
        try:
            end = (folder / "data" / _PARAPHRASES).read_bytes()[-8:-4]
        except OSError as error:
            raise TablesError(f"METEOR's paraphrases are missing: {error}.") from error
        found[_PARAPHRASES] = int.from_bytes(end, "little")  # a gzip file ends with it
    for name, checksum in tables.items():
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
    write_json(folder / "prefixes.json", prefixes)


def _pairs(name: str) -> Iterable[tuple[bytes, bytes]]:
    """Yields the first and second line of every two."""
    lines = iter(read_table(name).splitlines())
    yield from zip(lines, lines, strict=True)


def _paraphrases() -> Iterable[tuple[int, list[int]]]:
    """Yields each phrase with its paraphrases, then the beginnings of phrases with none."""
    hashes: dict[bytes, int] = {}

    def words(line: bytes) -> Iterable[int]:
        for word in line.split():
            if word not in hashes:
                hashes[word] = word_hash(word)
            yield hashes[word]

    phrases, beginnings = set(), set()
    with gzip.open(installed() / "data" / _PARAPHRASES) as file:
        last, found = None, []
        for _ in file:  # a probability, which METEOR does not use
            phrase, paraphrase = next(file), next(file)
            if phrase != last:  # phrases are in order
                if last is not None:
                    *first, whole = _hashes(words(last))
                    beginnings.update(first)
                    phrases.add(whole)
                    yield whole, found
                last, found = phrase, []
            found.append(_hashes(words(paraphrase))[-1])
    *first, whole = _hashes(words(last))
    yield whole, found
    yield from ((key, ()) for key in sorted((beginnings | {*first}) - phrases - {whole}))


def _hashes(words: Iterable[int]) -> list[int]:
    """Returns the hashes of a phrase's first word, its first two, and so on."""
    found: list[int] = []
    for word in words:
        found.append(longer(found[-1], word) if found else word)
    return found


def _write_arabic(folder: Path) -> None:
    # A word, then how often it has which stem, for each of its stems.
    lines = (line.split() for line in read_table(*ARABIC_TABLES).splitlines())
    stems = ((word_hash(word), [*map(word_hash, some[1::2])]) for word, *some in lines)
    write_lists(folder, "stems", stems)


def read_prefixes() -> dict[str, bool]:
    """Returns the English abbreviations that keep their full stop; True if before numbers alone."""
    return json.loads((english_index() / "prefixes.json").read_text(encoding="utf-8"))
