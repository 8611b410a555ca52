"""Captions that are the sentences of another edition of a data set, reordered and corrected.

Flickr30k Entities annotates Flickr30k's captions. Flickr8k has them for the same photographs, in
another order, a few in another wording.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

from sat_tf.vocabulary import tokenize

CLOSE = 0.75
"""Least ratio of common words, by difflib, at which a sentence may be a caption: one word in four
changed. Two different captions of an image are as close in 2 % of the pairs (Flickr8k, dev)."""

Sentence = tuple[int, tuple[str, ...]]
"""Index among the sentences of its image, and words."""
Alignment = tuple[int, Sequence[int | None]]
"""Index of a caption, and the index in it of each word of a sentence; None if it lacks the word."""

_PART = re.compile("'?[^']+")


def split_words(text: str) -> list[str]:
    """Splits a text into the words of `tokenize`, clitics apart: "man's" is "man 's"."""
    return [part for word in tokenize(text) for part in _PART.findall(word)]


def align_captions(
    sentences: Iterable[Sentence], captions: Iterable[Sequence[str]]
) -> dict[Sentence, Alignment]:
    """Finds the caption that each sentence is.

    It has the same words (of several such captions, the one of the same index comes first), or else
    is the closest one. No caption is given to two sentences.

    Args:
        sentences: The sentences.
        captions: Words of each caption.

    Returns:
        Sentence -> its caption; a sentence that no caption is close to is left out.
    """
    found: dict[Sentence, Alignment] = {}
    changed, free = [], dict(enumerate(map(tuple, captions)))
    for sentence in sentences:
        number, words = sentence
        same = [caption for caption, of_caption in free.items() if of_caption == words]
        if same:
            caption = number if number in same else same[0]
            found[sentence] = caption, range(len(free.pop(caption)))
        else:
            changed.append(sentence)
    # difflib is slow, and only a few captions are corrected.
    pairs = [
        (SequenceMatcher(None, sentence[1], words, autojunk=False), sentence, caption)
        for sentence in changed
        for caption, words in free.items()
    ]
    for matcher, sentence, caption in sorted(pairs, key=lambda pair: -pair[0].ratio()):
        if sentence not in found and caption in free and matcher.ratio() >= CLOSE:
            found[sentence] = caption, _common_words(matcher, len(sentence[1]))
            del free[caption]
    return found


def _common_words(matcher: SequenceMatcher, count: int) -> list[int | None]:
    places: list[int | None] = [None] * count
    for block in matcher.get_matching_blocks():
        places[block.a : block.a + block.size] = range(block.b, block.b + block.size)
    return places
