"""Scores of a list of captions under a list of the references of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sat_tf.scores.ngrams import bleu_scores, bleu_statistics, cider_scores, rouge_scores
from sat_tf.scores.tokens import (
    OVER_CHARACTERS,
    ScoreTokens,
    default_tokens,
    signature,
    split_captions,
    split_lines,
)
from sat_tf.util.errors import invalid_value


class Score(NamedTuple):
    """A score of captions.

    Attributes:
        score: That of all captions together.
        per_image: `[N]`, the score of each caption alone.
        signature: The properties that comparable scores share, a line like sacrebleu's.
    """

    score: float
    per_image: np.ndarray
    signature: str


def tokenize(
    captions: Sequence[str], *, language: str = "en", tokens: ScoreTokens | None = None
) -> list[str]:
    """Splits captions into tokens, without letter case and most punctuation.

    Args:
        captions: Captions as people write them.
        language: Their language code.
        tokens: Name of the tokeniser; for English by default "ptb", Stanford's words as its
            program finds them.

    Returns:
        The tokens of each caption, with blanks between them.

    Raises:
        ValueError: `captions` is one text instead of a list, or the package that splits is missing.
    """
    _check_texts("captions", captions)
    return split_lines(tokens or default_tokens(language), captions)


def bleu(
    captions: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    n: int = 4,
    brevity_penalty: bool = True,
    language: str = "en",
    tokens: ScoreTokens | None = None,
) -> Score:
    """Computes BLEU-n, 0-100: the geometric mean of the precisions of 1- to n-grams.

    BLEU-n = min(1, exp(1 - 1/ratio)) (prod_{k<=n} correct_k / guess_k)^(1/n), ratio = words of the
    captions over words of the references closest in length. NaN if no k-gram matches.

    Args:
        captions: `N` captions.
        references: The references of each, at least one.
        n: The longest n-grams, 1 to 4.
        brevity_penalty: False leaves out the first factor, as Xu et al. (2015) do.
        language: Language code of the captions.
        tokens: See `tokenize`.

    Raises:
        ValueError: Nothing to score, lists of unequal length, a caption without references, or
            arguments out of range.

    References:
        Papineni et al. (2002), "BLEU: a Method for Automatic Evaluation of Machine Translation".
    """
    if n not in range(1, 5):
        raise invalid_value("n", "1 to 4", n)
    words, theirs, said = _split(captions, references, language, tokens)
    rows, name = bleu_statistics(words, theirs), f"bleu_{n}" + "_no_bp" * (not brevity_penalty)
    return Score(float(bleu_scores(rows.sum(axis=0))[name]), bleu_scores(rows)[name], said)


def cider(
    captions: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    language: str = "en",
    tokens: ScoreTokens | None = None,
) -> Score:
    """Computes CIDEr, 0-1000: the similarity of n-grams weighed by how few images have them.

    It is the CIDEr-D of pycocoevalcap (10 at most there) times 100, with the document frequencies
    of these references: fewer images give another scale. NaN if all n-grams are in all references.
    Arguments and errors are those of `bleu`.

    References:
        Vedantam et al. (2015), arXiv:1411.5726.
    """
    words, theirs, said = _split(captions, references, language, tokens)
    each = cider_scores(words, theirs)
    return Score(float(each.mean()), each, said)


def rouge_l(
    captions: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    language: str = "en",
    tokens: ScoreTokens | None = None,
) -> Score:
    """Computes ROUGE-L, 0-100: an F-measure of the longest common subsequence of words.

    Arguments and errors are those of `bleu`.

    References:
        Lin (2004), "ROUGE: A Package for Automatic Evaluation of Summaries".
    """
    words, theirs, said = _split(captions, references, language, tokens)
    each = rouge_scores(words, theirs)
    return Score(float(each.mean()), each, said)


def meteor(
    captions: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    language: str = "en",
    tokens: ScoreTokens | None = None,
) -> Score:
    """Computes METEOR 1.5, 0-100: an alignment of words, their stems, synonyms and paraphrases.

    METEOR = F (1 - gamma (chunks / matches)^beta), F the harmonic mean of precision and recall
    that weighs recall more. The score of all captions is that of their summed counts; it is not
    the mean. Tables are those of the installed pycocoevalcap, indexed in a minute at first use.
    Arguments are those of `bleu`.

    Raises:
        ValueError: As `bleu`, or tokens that are characters.
        TablesError: The tables are missing or of another version.

    References:
        Denkowski and Lavie (2014), "Meteor Universal: Language Specific Translation Evaluation for
        Any Target Language".
    """
    chosen = tokens or default_tokens(language)
    if chosen in OVER_CHARACTERS:
        raise invalid_value("tokens", "tokens that are words, for METEOR", repr(chosen))
    from sat_tf.scores.meteor_scoring import meteor_of, meteor_scores

    program = meteor_of(language)
    words, theirs, said = _split(captions, references, language, tokens, str(program.tables))
    rows = program.statistics(words, theirs)
    whole = float(meteor_scores(rows.sum(axis=0), program.tables))
    return Score(whole, meteor_scores(rows, program.tables), said)


def _split(
    captions: Sequence[str],
    references: Sequence[Sequence[str]],
    language: str,
    tokens: ScoreTokens | None,
    tables: str | None = None,
) -> tuple[list[str], list[list[str]], str]:
    """Splits captions and references, in tokens with blanks between them; with the signature."""
    name = tokens or default_tokens(language)
    _check_texts("captions", captions)
    if isinstance(references, str | Mapping) or len(references) != len(captions) or not captions:
        expected = f"a list with the references of {len(captions) or 'at least one'} captions"
        got = f"{type(references).__name__} of {len(references)}"
        raise invalid_value("references", expected, got)
    for own in references:
        _check_texts("references", own)
    if bare := sum(not own for own in references):
        raise invalid_value("references", "at least one per caption", f"none for {bare}")
    words, theirs = split_captions(name, captions, references)
    if not any(map(any, theirs)):
        raise invalid_value("references", "a reference with a word", "none")
    return words, theirs, signature(name, language, theirs, tables)


def _check_texts(name: str, texts: Sequence[str]) -> None:
    """Checks that texts are a list; of a dictionary only the keys would be scored."""
    if isinstance(texts, str | Mapping) or not all(isinstance(text, str) for text in texts):
        expected = "a list of texts" + (" per caption" if name == "references" else "")
        raise invalid_value(name, expected, f"{type(texts).__name__} {str(texts)[:80]!r}")
