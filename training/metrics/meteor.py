"""METEOR 1.5: statistics of each image from pycocoevalcap's jar, corpus scores from their sums.

The jar aligns words by its tables of synonyms and paraphrases. The score is a formula on its
counts, computed here so that a thousand resamples need no Java.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from training.metrics.java import JavaError, JavaProgram, ask_java, find_java

# English, task "rank": METEOR's default for `-l en`.
ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
MODULE_WEIGHTS = (1.0, 0.6, 0.8, 0.6)
"""Weights of exact matches, stems, synonyms and paraphrases."""

STATISTICS = 23
# Columns of a row: words, then function words, each of candidate and reference; matched words by
# module, content or function, candidate or reference; chunks; matched words of both.
_WORDS, _MATCHES, _CHUNKS, _MATCHED = slice(0, 4), slice(4, 20), 20, slice(21, 23)

# METEOR takes seconds; a busy machine gets this long before METEOR is left out.
SECONDS, SECONDS_PER_IMAGE = 300.0, 0.5


def meteor_command(java: str) -> list[str]:
    """Returns the command of METEOR, which reads SCORE and EVAL lines until its input ends."""
    from pycocoevalcap.meteor import meteor

    jar = Path(meteor.__file__).with_name(meteor.METEOR_JAR)
    command = [java, "-Xmx2G", "-Dfile.encoding=UTF-8", "-jar", str(jar)]
    return [*command, "-", "-", "-stdio", "-l", "en", "-norm"]


def score_line(caption: str, references: Sequence[str]) -> str:
    """Formats the request for the statistics of one image."""
    # The bar is METEOR's separator.
    return " ||| ".join(["SCORE", *(s.replace("|", " ") for s in (*references, caption))])


def meteor_statistics(
    java: str | None, words: Sequence[str], references: Sequence[Sequence[str]]
) -> np.ndarray:
    """Computes the contribution of each of `N` images to corpus METEOR.

    Of several references METEOR takes the one with the best score for its image.

    Returns:
        `[N, 23]`; the sum over rows is that of the corpus, see `meteor_scores`.

    Raises:
        JavaError: METEOR did not run.
    """
    if java is None:
        raise JavaError("Java was not found.")
    lines = [score_line(w, r) for w, r in zip(words, references, strict=True)]
    seconds = SECONDS + SECONDS_PER_IMAGE * len(lines)
    answers = ask_java(meteor_command(java), lines, seconds, "METEOR")
    return parse_statistics(answers)


class MeteorProgram:
    """METEOR, loaded once for many questions.

    Raises:
        JavaError: There is no Java, or METEOR did not start.
    """

    def __init__(self) -> None:
        java = find_java()
        if java is None:
            raise JavaError("METEOR did not run: Java was not found.")
        self._program = JavaProgram(meteor_command(java), "METEOR")

    def scores(self, captions: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
        """Computes the METEOR of each caption, `[N]`, 0-100.

        Raises:
            JavaError: METEOR has stopped.
        """
        lines = [score_line(c, r) for c, r in zip(captions, references, strict=True)]
        return meteor_scores(parse_statistics(self._program.ask(lines)))


def parse_statistics(answers: Sequence[str]) -> np.ndarray:
    """Parses METEOR's answers to SCORE lines into rows `[N, 23]` that can be summed."""
    try:
        rows = np.array([[float(value) for value in line.split()] for line in answers])
        rows = rows.reshape(len(answers), STATISTICS)
    except ValueError as error:
        raise JavaError(f"METEOR answered something else than statistics ({error}).") from error
    # METEOR does not penalise the single chunk of a caption identical to its reference, in the
    # score of the image and of the corpus alike.
    matched = rows[:, _MATCHES].reshape(-1, 8, 2).sum(axis=1)
    whole = (matched == rows[:, :2]).all(axis=1) & (rows[:, _CHUNKS] == 1)
    rows[whole, _CHUNKS] = 0.0
    return rows


def meteor_scores(totals: np.ndarray) -> np.ndarray:
    """Computes corpus METEOR from summed statistics, for any number of corpora at once.

    Content words weigh delta, function words 1 - delta, matches also the weight of their module.
    With P and R the weighted shares of words matched in candidates and references,
    F = P R / (alpha P + (1 - alpha) R) and METEOR = F (1 - gamma (chunks / matches)^beta).

    Args:
        totals: `[..., 23]`, sums of rows of `meteor_statistics`, weighted or not; a single row
            gives the score of its image.

    Returns:
        `[...]`, 0-100; 0 if nothing matches.

    References:
        Denkowski and Lavie (2014), "Meteor Universal: Language Specific Translation Evaluation for
        Any Target Language".
    """
    totals = np.asarray(totals, np.float64)
    matches = totals[..., _MATCHES].reshape(*totals.shape[:-1], 4, 2, 2)
    weights = np.outer(MODULE_WEIGHTS, [DELTA, 1.0 - DELTA])
    matches = np.einsum("...mks,mk->...s", matches, weights)
    words, function_words = np.split(totals[..., _WORDS], 2, axis=-1)
    lengths = DELTA * (words - function_words) + (1.0 - DELTA) * function_words
    precision, recall = np.moveaxis(_ratio(matches, lengths), -1, 0)
    mean = _ratio(precision * recall, ALPHA * precision + (1.0 - ALPHA) * recall)
    fragmentation = _ratio(totals[..., _CHUNKS], totals[..., _MATCHED].mean(axis=-1))
    return 100.0 * mean * (1.0 - GAMMA * fragmentation**BETA)


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Divides; 0 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.zeros_like(denominator), where=denominator > 0)
