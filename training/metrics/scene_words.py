"""Accuracy of the colours, shapes and relations that captions of drawn scenes name.

A caption is parsed into statements: noun phrases (size, colour, shape) and relations between
neighbouring phrases. They are compared with the objects of the image, whatever their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations

from sat_tf.tokens import tokenize
from training.data.examples import Example, Split
from training.data.sources.scenes import COLOURS, RELATIONS, SHAPES, SIZES, relation

_RELATION_WORDS = tuple(tuple(name.split()) for name in RELATIONS)
_BETWEEN = ("a", "an", "the", "one")


@dataclass(frozen=True)
class NounPhrase:
    """Attributes that a caption gives to one object; None if it gives none."""

    size: str | None
    colour: str | None
    shape: str | None


@dataclass(frozen=True)
class _Reference:
    size: str
    colour: str
    shape: str
    box: tuple[float, float, float, float]
    seen: bool


def parse(caption: str) -> tuple[list[NounPhrase], list[tuple[int, str, int]]]:
    """Parses a caption: phrases in order, and `(phrase index, relation, phrase index)` each.

    A noun phrase is a run of attribute words in the order size, colour, shape, with at least a
    colour or a shape. A relation counts if a phrase ends right before it and another begins right
    after it, articles aside.
    """
    words = tokenize(caption)
    phrases: list[NounPhrase] = []
    relations = []
    pending = None  # relation since the last phrase, as long as nothing else came between
    adjoins = False  # True right after a phrase
    at = 0
    while at < len(words):
        phrase, length = _read_phrase(words, at)
        if phrase is not None:
            phrases.append(phrase)
            if pending is not None:
                relations.append((len(phrases) - 2, pending, len(phrases) - 1))
            pending, adjoins = None, True
        else:
            name, length = _read_relation(words, at)
            if name is not None:
                pending = name if adjoins else None
            elif words[at] not in _BETWEEN:
                pending = None
            adjoins = False
        at += length
    return phrases, relations


def _read_phrase(words: list[str], at: int) -> tuple[NounPhrase | None, int]:
    found: list[str | None] = []
    end = at
    for choices in (SIZES, COLOURS, SHAPES):
        if end < len(words) and words[end] in choices:
            found.append(words[end])
            end += 1
        else:
            found.append(None)
    if found[1] is None and found[2] is None:
        return None, 1
    return NounPhrase(*found), end - at


def _read_relation(words: list[str], at: int) -> tuple[str | None, int]:
    for name, parts in zip(RELATIONS, _RELATION_WORDS, strict=True):
        if tuple(words[at : at + len(parts)]) == parts:
            return name, len(parts)
    return None, 1


def _references(example: Example) -> list[_Reference]:
    """Lists the objects that the captions of the example name, each once."""
    by_box = {phrase.box: phrase for phrase in example.phrases}
    return [_Reference(*p.text.split(), p.box, p.seen) for p in by_box.values()]


def _match(objects: list[_Reference], phrases: list[NounPhrase]) -> tuple[int | None, ...]:
    """Matches phrases to objects one to one so that most attributes agree; None if unmatched.

    Of equal matches, the one that gives earlier objects earlier phrases wins.
    """

    def agreement(match: tuple[int | None, ...]) -> int:
        pairs = [(o, phrases[k]) for o, k in zip(objects, match, strict=True) if k is not None]
        # Size only decides between matches that are otherwise equal.
        return sum(
            8 * (p.colour == o.colour) + 8 * (p.shape == o.shape) + (p.size == o.size)
            for o, p in pairs
        )

    # Permutations come in the order of the places, and `max` returns the first of equals.
    places = [*range(len(phrases)), *[None] * len(objects)]
    return max(permutations(places, len(objects)), key=agreement)


def word_scores(captions: Mapping[str, str], split: Split) -> dict[str, float]:
    """Computes the accuracy of colour, shape and relation words of generated captions.

    Each phrase of a caption is matched to at most one object of the image so that most colours
    and shapes are right. An object without a phrase counts as wrong. Missing captions are not
    counted.

    Returns:
        Percentages, as `words_...`, each absent if there was nothing to count:
        `colour_seen`, `shape_seen`, `pair_seen`: objects whose phrase has the right colour,
        shape, both, among colour-shape pairs that occur in training;
        `colour_held_out`, `shape_held_out`, `pair_held_out`: the same for held-out pairs;
        `size`: objects whose phrase has the right size;
        `relation`: generated relations that hold between the boxes of two objects whose colours
        and shapes are right;
        `objects`: captions with as many phrases as the image has objects.
    """
    if not split.has_phrases:
        return {}
    examples = {example.image_id: example for example in split.examples}
    marks: dict[str, list[bool]] = {}

    def count(key: str, right: bool) -> None:
        marks.setdefault(key, []).append(bool(right))

    for image_id, caption in captions.items():
        objects = _references(examples[image_id])
        phrases, relations = parse(caption)
        count("objects", len(phrases) == len(objects))
        owner: dict[int, int] = {}
        for index, (item, chosen) in enumerate(zip(objects, _match(objects, phrases), strict=True)):
            phrase = NounPhrase(None, None, None) if chosen is None else phrases[chosen]
            colour, shape = phrase.colour == item.colour, phrase.shape == item.shape
            group = "seen" if item.seen else "held_out"
            count(f"colour_{group}", colour)
            count(f"shape_{group}", shape)
            count(f"pair_{group}", colour and shape)
            count("size", phrase.size == item.size)
            if chosen is not None and colour and shape:
                owner[chosen] = index
        for first, name, second in relations:
            named = [objects[owner[phrase]].box for phrase in (first, second) if phrase in owner]
            count("relation", len(named) == 2 and relation(*named) == name)
    return {f"words_{key}": 100.0 * sum(own) / len(own) for key, own in sorted(marks.items())}
