"""METEOR 1.5 of captions, as its program computes it, for evaluation and as a reward.

METEOR aligns words by tables of the language, for English also of synonyms and paraphrases;
languages without any share parameters and match equal words. The score is a formula on counts,
which can be summed over images.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from sat_tf.scores.meteor_words import Lexicon, Word, function_words, longer, split_english
from sat_tf.scores.tokens import primary

# --- the alignment of a caption with a reference ---

# Of the matches of words it is the best choice. A beam search goes through the reference from left
# to right; it prefers what matches more words exactly, then fewer chunks, then shorter distances.

BEAM = 40
"""Partial alignments that survive each word of the reference."""
_MOST = 40  # matches of one word
# A path's rank is one number: matches first, chunks next, distance last.
_MATCH, _CHUNK = -(1 << 48), 1 << 24
_rank = itemgetter(0)


class Match(NamedTuple):
    """A phrase of the reference that matches one of the caption, words from start to end.

    Attributes:
        module: 0 exact, 1 stem, 2 synonym, 3 paraphrase.
        start: In the reference, as `end`; `own_start` and `own_end` are in the caption.
        gain: Words of both that it counts for in the search, half of them rounded down unless they
            are equal: a single stem or synonym counts for nothing.
    """

    module: int
    start: int
    end: int
    own_start: int
    own_end: int
    gain: int


def align(matches: Sequence[Sequence[Match]]) -> list[Match]:
    """Chooses matches that do not overlap, as METEOR 1.5 does, in the order of the reference.

    Args:
        matches: Those that start at each word of the reference; of more than `_MOST`, as texts
            that repeat a word have them, the nearest count.
    """
    near = lambda match: (match.module, abs(match.start - match.own_start))  # noqa: E731
    matches = [some if len(some) <= _MOST else sorted(some, key=near)[:_MOST] for some in matches]
    # As bits: words of the caption and of the reference, those that matches cover and those that
    # more than one covers.
    once = twice = once_there = twice_there = 0
    for some in matches:
        for _, start, end, own_start, own_end, _ in some:
            bits, there = (1 << own_end) - (1 << own_start), (1 << end) - (1 << start)
            twice |= once & bits
            once |= bits
            twice_there |= once_there & there
            once_there |= there
    if not twice and not twice_there:
        return [match for some in matches for match in some]
    fixed: list[Match | None] = [None] * len(matches)
    taken = taken_there = 0
    for start, some in enumerate(matches):
        if len(some) == 1:
            (match,) = some
            bits, there = _bits(match.own_start, match.own_end), _bits(start, match.end)
            if not twice & bits and not twice_there & there:
                fixed[start] = match
                taken |= bits
                taken_there |= there
    open_ = [
        [
            (match, bits)
            for match in some
            if not taken & (bits := _bits(match.own_start, match.own_end))
            and not taken_there & _bits(match.start, match.end)
        ]
        for some in matches
    ]
    return _search(fixed, open_, taken_there)


def _bits(start: int, end: int) -> int:
    return (1 << end) - (1 << start)


def _search(
    fixed: Sequence[Match | None], matches: Sequence[Sequence[tuple[Match, int]]], taken: int
) -> list[Match]:
    """Completes the matches that are `fixed`, which take the words `taken` of the reference."""
    # Rank, words used of the caption, end there of the last match (-1 after a gap), end of the
    # last match in the reference, and the matches chosen, the last first.
    paths, quiet = [(0, 0, -1, 0, ())], False
    for place, (match, some) in enumerate(zip(fixed, matches, strict=True)):
        if quiet and not match and not some:
            continue  # all paths are in the same gap
        if len(paths) > 1:
            paths.sort(key=_rank)
            del paths[BEAM:]
        quiet = False
        if match:
            step = match.gain * _MATCH + abs(place - match.own_start)
            paths = [
                (
                    rank + step + (_CHUNK if -1 != last != match.own_start else 0),
                    used,
                    match.own_end,
                    match.end,
                    (match, chosen),
                )
                for rank, used, last, _, chosen in paths
            ]
        elif taken >> place & 1:
            continue
        elif some:
            paths = _extended(paths, place, some)
        else:
            paths = [
                path
                if path[3] > place or path[2] < 0
                else (path[0] + _CHUNK, path[1], -1, path[3], path[4])
                for path in paths
            ]
            quiet = all(path[3] <= place for path in paths)
    paths.sort(key=_rank)
    del paths[BEAM:]
    *_, chosen = min(
        ((rank + (_CHUNK if last != -1 else 0), chosen) for rank, _, last, _, chosen in paths),
        key=_rank,
    )
    found = []
    while chosen:
        match, chosen = chosen
        found.append(match)
    return found[::-1]


def _extended(paths: list, place: int, matches: Sequence[tuple[Match, int]]) -> list:
    """Returns each path with each match that it leaves room for, and without any."""
    extended = []
    for path in paths:
        rank, used, last, end, chosen = path
        if end > place:
            extended.append(path)
            continue
        for match, bits in matches:
            if used & bits:
                continue
            extended.append(
                (
                    rank + match.gain * _MATCH + (_CHUNK if -1 != last != match.own_start else 0),
                    used | bits,
                    match.own_end,
                    match.end,
                    (match, chosen),
                )
            )
            # The program adds a match's distance to the path that it came from instead: every
            # later choice, not to match at all among them, bears the distances of those before.
            rank += abs(place - match.own_start)
        extended.append((rank + (_CHUNK if last != -1 else 0), used, -1, end, chosen))
    return extended


# --- languages, and the score ---


class Tables(NamedTuple):
    """METEOR's tables and parameters for a language, those of its task "rank" where it has them.

    Attributes:
        name: English name of the language in METEOR's tables.
        modules: Ways to match words that its tables allow. Paraphrases come with pycocoevalcap for
            English only.
        alpha: Weight of recall against precision.
        beta: Exponent of the penalty for chunks.
        gamma: Weight of that penalty.
        delta: Weight of content words against function words.
        weights: Of the matches of each module, in the order exact, stem, synonym, paraphrase.
        code: Of the language, in signatures.
    """

    name: str
    code: str
    modules: tuple[str, ...] = ("exact", "stem")
    alpha: float = 0.75
    beta: float = 1.4
    gamma: float = 0.7
    delta: float = 0.5
    weights: tuple[float, float, float, float] = (1.0, 0.5, 0.5, 0.5)

    def __str__(self) -> str:
        return f"{self.code}-{'+'.join(self.modules)}"


_ALL = ("exact", "stem", "synonym", "paraphrase")
_STEM = _ALL[:2]
ENGLISH = Tables("english", "en", _ALL, 0.85, 0.2, 0.6, 0.75, (1.0, 0.6, 0.8, 0.6))
_SHARED = {
    **{"da": "danish", "fi": "finnish", "hu": "hungarian", "it": "italian", "nl": "dutch"},
    **{"no": "norwegian", "pt": "portuguese", "ro": "romanian", "ru": "russian", "tr": "turkish"},
}
_TABLES = {
    "en": ENGLISH,
    "cs": Tables("czech", "cz", ("exact",), 0.95, 0.2, 0.6, 0.8, (1.0, 0.4, 0.0, 0.0)),
    "de": Tables("german", "de", _STEM, 0.95, 1.0, 0.55, 0.55, (1.0, 0.8, 0.2, 0.0)),
    "es": Tables("spanish", "es", _STEM, 0.65, 1.3, 0.5, 0.8, (1.0, 0.8, 0.6, 0.0)),
    "fr": Tables("french", "fr", _STEM, 0.9, 1.4, 0.6, 0.65, (1.0, 0.2, 0.4, 0.0)),
    **{code: Tables(name, code) for code, name in _SHARED.items()},
    **dict.fromkeys(("nb", "nn"), Tables("norwegian", "no")),
    "sv": Tables("swedish", "se"),
}
_OTHER = Tables("other", "other", ("exact",))
STATISTICS = 23
# Columns of a row: words, then function words, each of candidate and reference; matched words by
# module, content or function, candidate or reference; chunks; matched words of both.
_WORDS, _MATCHES, _CHUNKS, _MATCHED = slice(0, 4), slice(4, 20), 20, slice(21, 23)


def tables_of(language: str) -> Tables:
    """Returns METEOR's tables for a language code, such as "de" or "pt-BR"."""
    return _TABLES.get(primary(language), _OTHER)


def check_tables() -> None:
    """Raises a `TablesError` if METEOR's tables are not installed; does not index them."""
    function_words()


class _Text:
    """A text's words, and places of all that they match by."""

    def __init__(self, words: list[Word], lexicon: Lexicon, longest: int) -> None:
        self.words = words
        self.keys = [word.key for word in words]
        self.function = sum(word.function for word in words)
        self.phrases: dict[int, list[tuple[int, int]]] = {}  # starts and ends, by hash
        for start in range(len(words)):
            phrase = 0
            for end in range(start, min(start + longest, len(words))):
                phrase = longer(phrase, words[end].hash)
                self.phrases.setdefault(phrase, []).append((start, end + 1))
        self.hashes = frozenset(self.phrases)
        self.paraphrased = lexicon.paraphrases(words)
        self.paraphrases = frozenset().union(*(others for _, _, others, _ in self.paraphrased))
        self.places: dict[int, list[int]] = {}
        self.stems: dict[int, list[int]] = {}
        for place, word in enumerate(words):
            self.places.setdefault(word.key, []).append(place)
            self.stems.setdefault(word.stem, []).append(place)
        self.meanings: set[int] = set()
        self.meanings_of_two: set[int] = set()  # of at least two different words
        for word in {word.key: word for word in words}.values():
            self.meanings_of_two |= self.meanings & word.meanings
            self.meanings |= word.meanings


class Meteor:
    """METEOR of captions in one language; words, phrases and references seen stay known.

    Args:
        language: Language code of the captions, such as "de".

    Raises:
        TablesError: The tables are not installed, are of another version, or cannot be indexed.

    References:
        Denkowski and Lavie (2014), "Meteor Universal: Language Specific Translation Evaluation for
        Any Target Language".
    """

    def __init__(self, language: str = "en") -> None:
        self.tables = tables_of(language)
        self._lexicon = Lexicon(self.tables.name, len(self.tables.modules))
        self._reference = functools.lru_cache(_REMEMBERED)(self._prepare)
        self._row = functools.lru_cache(_REMEMBERED)(self._best)  # samples of rewards repeat
        self._longest = _LONGEST if "paraphrase" in self.tables.modules else 0

    def statistics(
        self, captions: Sequence[str], references: Sequence[Sequence[str]]
    ) -> np.ndarray:
        """Computes the contribution of each of `N` images to corpus METEOR.

        Of several references METEOR takes the one with the best score for its image.

        Args:
            captions: Captions in small letters, with blanks between their tokens.
            references: Those of each image, at least one.

        Returns:
            `[N, 23]`; the sum over rows is that of the corpus, see `meteor_scores`.
        """
        rows = np.zeros((len(captions), STATISTICS))
        for row, caption, texts in zip(rows, captions, references, strict=True):
            row[:] = self._row(caption, tuple(texts))
        # METEOR does not penalise the single chunk of a caption identical to its reference, in
        # the score of the image and of the corpus alike.
        matched = rows[:, _MATCHES].reshape(-1, 8, 2).sum(axis=1)
        whole = (matched == rows[:, :2]).all(axis=1) & (rows[:, _CHUNKS] == 1)
        rows[whole, _CHUNKS] = 0.0
        return rows

    def scores(self, captions: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
        """Computes the METEOR of each caption, `[N]`, 0-100; arguments as `statistics`."""
        return meteor_scores(self.statistics(captions, references), self.tables)

    def grounded(self, captions: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
        """Judges whether every content word of each caption matches some reference of its image.

        Arguments as `statistics`. A word matches as in METEOR: as it is, or by stem, synonym or
        paraphrase where the language has them.

        Returns:
            bool `[N]`; False for a caption without a content word.
        """
        rows = zip(captions, references, strict=True)
        return np.array([self._grounded(caption, texts) for caption, texts in rows], bool)

    def _grounded(self, caption: str, references: Sequence[str]) -> bool:
        own = self._prepare(caption)
        found: set[int] = set()
        for text in references:
            for matches in self._matches(own, self._reference(text)):
                for match in matches:
                    found.update(range(match.own_start, match.own_end))
        content = {place for place, word in enumerate(own.words) if not word.function}
        return bool(content) and content <= found

    def _best(self, caption: str, references: Sequence[str]) -> list[int]:
        """Returns the statistics under the first of the references with the best score."""
        own = self._prepare(caption)
        rows = [self._counts(own, self._reference(text)) for text in references]
        if len(rows) == 1:
            return rows[0]
        scores = [_score(row, self.tables) for row in rows]
        return rows[scores.index(max(scores))]

    def _words(self, text: str) -> list[Word]:
        words = split_english(text) if self.tables == ENGLISH else text.split()
        return [*map(self._lexicon.word, words)]

    def _prepare(self, text: str) -> _Text:
        return _Text(self._words(text), self._lexicon, self._longest)

    def _counts(self, own: _Text, reference: _Text) -> list[int]:
        """Returns the statistics of a caption under one reference."""
        words, theirs = own.words, reference.words
        row = [len(words), len(theirs), own.function, reference.function] + [0] * 19
        last, chunks = None, 0
        for module, start, end, own_start, own_end, _ in align(self._matches(own, reference)):
            content = 4 + 4 * module
            if end - start == own_end - own_start == 1:
                row[content + 2 * words[own_start].function] += 1
                row[content + 1 + 2 * theirs[start].function] += 1
            else:
                for word in words[own_start:own_end]:
                    row[content + 2 * word.function] += 1
                for word in theirs[start:end]:
                    row[content + 1 + 2 * word.function] += 1
            chunks += last != (start, own_start)
            last = end, own_end
        row[_CHUNKS] = chunks
        row[21], row[22] = sum(row[4:20:2]), sum(row[5:20:2])
        return row

    def _matches(self, own: _Text, reference: _Text) -> list[Sequence[Match]]:
        """Lists what matches from each word of a reference on, in METEOR's order."""
        theirs = reference.words
        if own.keys == reference.keys:
            # For equal texts METEOR looks at equal words alone.
            return [
                [Match(0, start, start + 1, n, n + 1, 2) for n in own.places[word.key]]
                for start, word in enumerate(theirs)
            ]
        found: list[Sequence[Match]] = []
        modules = len(self.tables.modules)
        for start, word in enumerate(theirs):
            key, end = word.key, start + 1
            places = own.places.get(key, ())
            some = [Match(0, start, end, n, n + 1, 2) for n in places]
            if modules > 1:
                same = own.stems.get(word.stem, ())
                if len(same) > len(places):
                    some += [Match(1, start, end, n, n + 1, 0) for n in same if own.keys[n] != key]
            if modules > 2:
                # A word that the caption has, too, shares its meanings with itself.
                meanings = own.meanings_of_two if places else own.meanings
                if not meanings.isdisjoint(word.meanings):
                    some += [
                        Match(2, start, end, n, n + 1, 0)
                        for n, other in enumerate(own.words)
                        if other.key != key and not word.meanings.isdisjoint(other.meanings)
                    ]
            found.append(some)
        # Phrases are looked up in both directions, and what is found twice counts twice.
        there = () if reference.paraphrases.isdisjoint(own.hashes) else reference.paraphrased
        for start, end, others, phrase in there:
            if not others.isdisjoint(own.hashes):
                for other in self._lexicon.in_order(phrase, others & own.hashes):
                    found[start] += [
                        Match(3, start, end, *place, _gain(start, end, *place))
                        for place in own.phrases[other]
                    ]
        here = () if own.paraphrases.isdisjoint(reference.hashes) else own.paraphrased
        for start, end, others, phrase in here:
            if not others.isdisjoint(reference.hashes):
                for other in self._lexicon.in_order(phrase, others & reference.hashes):
                    for place in reference.phrases[other]:
                        gain = _gain(start, end, *place)
                        found[place[0]].append(Match(3, *place, start, end, gain))
        return found


meteor_of = functools.lru_cache(4)(Meteor)
"""The `Meteor` of a language, one for all callers."""


def _gain(start: int, end: int, own_start: int, own_end: int) -> int:
    """Returns what a paraphrase counts for in the search: half its words, rounded down."""
    return (end - start) // 2 + (own_end - own_start) // 2


_LONGEST = 6  # words of a paraphrase
_REMEMBERED = 1 << 14  # references


def _score(row: Sequence[int], tables: Tables) -> float:
    """Computes the score of one row, 0-1: `meteor_scores` without NumPy."""
    delta, weights = tables.delta, tables.weights
    shares = []
    for side in (0, 1):
        words, function = row[side], row[2 + side]
        matched = sum(row[4 + 4 * n + side] * weights[n] for n in range(4)) * delta
        matched += sum(row[6 + 4 * n + side] * weights[n] for n in range(4)) * (1.0 - delta)
        length = delta * (words - function) + (1.0 - delta) * function
        if not matched:
            return 0.0
        shares.append(matched / length)
    precision, recall = shares
    mean = 1.0 / ((1.0 - tables.alpha) / precision + tables.alpha / recall)
    own, theirs = row[_MATCHED]
    chunks = 0 if row[_CHUNKS] == 1 and own == row[0] and theirs == row[1] else row[_CHUNKS]
    return mean * (1.0 - tables.gamma * (chunks / ((own + theirs) / 2)) ** tables.beta)


def meteor_scores(totals: np.ndarray, tables: Tables = ENGLISH) -> np.ndarray:
    """Computes corpus METEOR from summed statistics, for any number of corpora at once.

    Content words weigh delta, function words 1 - delta, matches also the weight of their module.
    With P and R the weighted shares of words matched in candidates and references,
    F = P R / (alpha P + (1 - alpha) R) and METEOR = F (1 - gamma (chunks / matches)^beta).

    Args:
        totals: `[..., 23]`, sums of rows of `Meteor.statistics`, weighted or not; a single row
            gives the score of its image.
        tables: Those that the rows were computed with.

    Returns:
        `[...]`, 0-100; 0 if nothing matches.

    References:
        Denkowski and Lavie (2014), "Meteor Universal: Language Specific Translation Evaluation for
        Any Target Language".
    """
    totals = np.asarray(totals, np.float64)
    matches = totals[..., _MATCHES].reshape(*totals.shape[:-1], 4, 2, 2)
    weights = np.outer(tables.weights, [tables.delta, 1.0 - tables.delta])
    matches = np.einsum("...mks,mk->...s", matches, weights)
    words, function_words = np.split(totals[..., _WORDS], 2, axis=-1)
    lengths = tables.delta * (words - function_words) + (1.0 - tables.delta) * function_words
    precision, recall = np.moveaxis(_ratio(matches, lengths), -1, 0)
    mean = _ratio(precision * recall, tables.alpha * precision + (1.0 - tables.alpha) * recall)
    fragmentation = _ratio(totals[..., _CHUNKS], totals[..., _MATCHED].mean(axis=-1))
    return 100.0 * mean * (1.0 - tables.gamma * fragmentation**tables.beta)


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Returns the quotient, 0 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.zeros_like(denominator), where=denominator > 0)
