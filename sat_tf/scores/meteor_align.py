"""METEOR's alignment of a caption with a reference: which words match, and the best choice of them.

A beam search goes through the reference from left to right. It prefers what matches more words
exactly, then fewer chunks, then shorter distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

BEAM = 40
"""Partial alignments that survive each word of the reference."""
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
        matches: Those that start at each word of the reference.
    """
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
