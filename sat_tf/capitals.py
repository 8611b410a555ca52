"""Written forms of words: captions regain the capitals that lower-case tokens have lost."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

from sat_tf.tokens import lower_case, split_words

CAPITAL_NOUNS = ("de", "lb")
"""Languages whose nouns have a capital, in which captions regain it by default."""

_SENTENCE_END = re.compile(r"[.!?:]\s")


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
            for form in split_words(sentence, language, lower=False)[1:]:
                forms[lower_case(form, language)][form] += 1
    # A tie goes to small letters.
    best = {w: max([w, *forms[w]], key=forms[w].__getitem__) for w in words if w in forms}
    return {word: form for word, form in best.items() if form != word}
