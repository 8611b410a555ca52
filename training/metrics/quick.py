"""BLEU and CIDEr of the captions after each epoch, and captions in tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sat_tf.scores.ngrams import CiderD, bleu_scores, bleu_statistics, count_grams
from sat_tf.scores.score_tokens import ScoreTokens, default_tokens, split_lines

MOST_DOCUMENTS = 30_000
"""Images whose captions give document frequencies: more would take a gigabyte for the same."""


def quick_scores(
    candidates: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    frequencies: CiderD,
    tokens: ScoreTokens = "simple",
    language: str = "en",
) -> dict[str, float]:
    """Computes `bleu_4` and `cider` (0-100 or NaN), for every epoch.

    Args:
        candidates: Image id -> caption.
        references: Image id -> raw reference captions.
        frequencies: See `caption_frequencies`. A report has those of its references: scores of
            other images, or of fewer, are on another scale then.
        tokens: What splits all captions; see `quick_tokens`.
        language: Of the captions.
    """
    texts = tokenise(candidates, references, tokens, language)
    bleu = bleu_scores(bleu_statistics(*texts).sum(axis=0))
    parts = []
    for caption, others in zip(*texts, strict=True):
        own, *theirs = (
            frequencies.vectors(count_grams(text.split())) for text in (caption, *others)
        )
        parts.append(frequencies.score(own, theirs))
    return {"bleu_4": float(bleu["bleu_4"]), "cider": 100.0 * float(np.mean(parts))}


def caption_frequencies(
    captions: Sequence[Sequence[str]], tokens: ScoreTokens = "simple", language: str = "en"
) -> CiderD:
    """Returns the document frequencies of each image's captions, evenly chosen if they are many."""
    every = -(-len(captions) // MOST_DOCUMENTS) or 1
    split = (split_lines(tokens, own, language) for own in captions[::every])
    return CiderD([count_grams(text.split()) for text in lines] for lines in split)


def quick_tokens(**splitting) -> ScoreTokens:
    """Returns the tokeniser of the scores after each epoch: `simple` for English."""
    found = default_tokens(**splitting)
    return "simple" if found == "ptb" else found


def tokenise(
    candidates: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    tokens: ScoreTokens = "simple",
    language: str = "en",
) -> tuple[list[str], list[list[str]]]:
    """Splits captions and their references into tokens, separated by spaces; see `split_lines`."""
    lines = [*candidates.values(), *(r for image in candidates for r in references[image])]
    split = iter(split_lines(tokens, lines, language))
    own = [next(split) for _ in candidates]
    return own, [[next(split) for _ in references[image]] for image in candidates]
