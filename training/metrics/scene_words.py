"""Accuracy of the colours, shapes and relations that captions of drawn scenes name.

A caption is parsed into statements: noun phrases (size, colour, shape) and relations between
neighbouring phrases. They are compared with the objects of the image, whatever their order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

from sat_tf.tokens import tokenize
from training.data.examples import Box, Split
from training.data.sources.scenes import COLOURS, RELATIONS, SHAPES, SIZES, relation

_BETWEEN = ("a", "an", "the", "one")


def _one_of(words: Sequence[str], name: str) -> str:
    return f"(?:(?P<{name}>{'|'.join(words)}) )"


# A blank follows each token of a caption.
_PARTS = re.compile(
    f"{_one_of(SIZES, 'size')}?"
    f"(?:{_one_of(COLOURS, 'colour')}{_one_of(SHAPES, 'shape')}?|{_one_of(SHAPES, 'alone')})"
    rf"|{_one_of(RELATIONS, 'relation')}|(?P<other>\S+) "
)


class NounPhrase(NamedTuple):
    """Attributes that a caption gives to one object; None if it gives none."""

    size: str | None
    colour: str | None
    shape: str | None


def parse(caption: str) -> tuple[list[NounPhrase], list[tuple[int, str, int]]]:
    """Parses a caption: phrases in order, and `(phrase index, relation, phrase index)` each.

    A noun phrase is a run of attribute words in the order size, colour, shape, with at least a
    colour or a shape. A relation counts if a phrase ends right before it and another begins right
    after it, articles aside.
    """
    phrases: list[NounPhrase] = []
    relations = []
    pending = None  # relation since the last phrase, as long as nothing else came between
    adjoins = False  # True right after a phrase
    for part in _PARTS.finditer("".join(f"{word} " for word in tokenize(caption))):
        is_phrase = part["relation"] is None and part["other"] is None
        if is_phrase:
            phrases.append(NounPhrase(part["size"], part["colour"], part["shape"] or part["alone"]))
            if pending is not None:
                relations.append((len(phrases) - 2, pending, len(phrases) - 1))
            pending = None
        elif part["relation"]:
            pending = part["relation"] if adjoins else None
        elif part["other"] not in _BETWEEN:
            pending = None
        adjoins = is_phrase
    return phrases, relations


def _match(objects: Sequence[NounPhrase], phrases: list[NounPhrase]) -> tuple[int | None, ...]:
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
        # The objects that the captions of the image name, each once.
        named = [*{phrase.box: phrase for phrase in examples[image_id].phrases}.values()]
        objects = [NounPhrase(*phrase.text.split()) for phrase in named]
        phrases, relations = parse(caption)
        count("objects", len(phrases) == len(objects))
        boxes: dict[int, Box] = {}
        for one, item, chosen in zip(named, objects, _match(objects, phrases), strict=True):
            phrase = NounPhrase(None, None, None) if chosen is None else phrases[chosen]
            colour, shape = phrase.colour == item.colour, phrase.shape == item.shape
            group = "seen" if one.seen else "held_out"
            count(f"colour_{group}", colour)
            count(f"shape_{group}", shape)
            count(f"pair_{group}", colour and shape)
            count("size", phrase.size == item.size)
            if chosen is not None and colour and shape:
                boxes[chosen] = one.box
        for first, name, second in relations:
            right = first in boxes and second in boxes
            count("relation", right and relation(boxes[first], boxes[second]) == name)
    return {f"words_{key}": 100.0 * sum(own) / len(own) for key, own in sorted(marks.items())}
