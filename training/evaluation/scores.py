"""BLEU, METEOR, CIDEr and ROUGE-L of generated captions, 0-100, with bootstrap intervals."""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sat_tf.scores.meteor_scoring import ENGLISH, Tables, meteor_of, meteor_scores
from sat_tf.scores.meteor_words import TablesError
from sat_tf.scores.ngrams import ORDERS, bleu_scores, bleu_statistics, cider_scores, rouge_scores
from sat_tf.scores.tokens import (
    NOT_WORDS,
    OVER_CHARACTERS,
    ScoreTokens,
    default_tokens,
    signature,
    split_captions,
)
from sat_tf.text.detokenize import Unit
from training.evaluation.bootstrap import UNDEFINED, Interval, few_images_note, interval_over_images

_WITH_INTERVALS = ("bleu_4", "meteor", "cider")
_FEW_IMAGES, _SAME = 10, 0.5


@dataclass(frozen=True, eq=False)
class CaptionScores:
    """Scores of a set of captions.

    Attributes:
        scores: `bleu_1` ... `bleu_4`, `bleu_1_no_bp` ... (without brevity penalty),
            `brevity_ratio` (words of the candidates / words of the closest references), `meteor`
            (absent if it could not run), `cider`, `rouge_l`. 0-100, except `brevity_ratio`. NaN
            for an undefined BLEU or CIDEr.
        image_ids: Images, in the order of every array.
        per_image: Metric -> `[N]`, the score of each image alone, same scales. Corpus `cider` and
            `rouge_l` are their means; corpus BLEU and METEOR are not.
        bleu: `[N, 10]` statistics that add up to corpus BLEU (`bleu_scores`).
        tokeniser: Name of what split the captions, one of `ScoreTokens`.
        meteor: `[N, 23]` statistics that give corpus METEOR (`meteor_scores`), or None.
        notes: Sentences for the report: omissions, and why.
        signature: What scores have to share to be compared, in a line like sacrebleu's.
        tables: METEOR's tables.
        verdict: A sentence if most captions are the same.
        right: `[N]`, whether every content word matches a reference, see `Meteor.grounded`; None
            without METEOR.
    """

    scores: dict[str, float]
    image_ids: tuple[str, ...]
    per_image: dict[str, np.ndarray]
    bleu: np.ndarray
    tokeniser: str
    meteor: np.ndarray | None = None
    notes: list[str] = field(default_factory=list)
    signature: str = ""
    tables: Tables = ENGLISH
    verdict: tuple[str, ...] = ()
    right: np.ndarray | None = None

    def details(self) -> dict[str, Any]:
        """Returns the part of a report that is about them, with intervals."""
        measured = [name for name in _WITH_INTERVALS if name in self.scores]
        return {
            "scores": dict(self.scores),
            "intervals": {name: score_interval(self, name) for name in measured},
            "notes": [*self.notes, *few_images_note(len(self.image_ids))],
            "images": len(self.image_ids),
            "tokeniser": self.tokeniser,
            "signature": self.signature,
        }


def score_captions(
    candidates: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    *,
    tokens: ScoreTokens | None = None,
    language: str = "en",
    unit: Unit = "words",
) -> CaptionScores:
    """Scores one caption per image against the reference captions of that image.

    Args:
        candidates: Image id -> caption, of at least one image. An empty caption matches nothing.
        references: Image id -> raw reference captions, at least one; the same ids.
        tokens: Tokeniser of all captions; that of `default_tokens(language, unit)` by default.

    Raises:
        ValueError: A package that splits is not installed.
    """
    notes: list[str] = []
    chosen = tokens or default_tokens(language, unit)
    of_each = [references[image] for image in candidates]
    texts = split_captions(chosen, [*candidates.values()], of_each)
    if characters := chosen in OVER_CHARACTERS:
        notes += [NOT_WORDS, "METEOR is left out: it is over words."]
    if empty := sum(not caption for caption in texts[0]):
        notes.append(f"{empty} of {len(candidates)} captions are empty and score 0.")
    bleu = bleu_statistics(*texts)
    per_image = bleu_scores(bleu)
    scores = {name: float(v) for name, v in bleu_scores(bleu.sum(axis=0)).items()}
    rows, tables, right = None, ENGLISH, None
    if not characters:
        try:
            program = meteor_of(language)
            rows, tables = program.statistics(*texts), program.tables
            per_image["meteor"] = meteor_scores(rows, tables)
            scores["meteor"] = float(meteor_scores(rows.sum(axis=0), tables))
            right = program.grounded(*texts)
        except TablesError as error:
            notes.append(f"METEOR is left out: {error}")
    kind = "characters" if characters else "words"
    means = {"cider": cider_scores(*texts), "rouge_l": rouge_scores(*texts)}
    scores |= {name: float(np.mean(values)) for name, values in means.items()}
    return CaptionScores(
        scores=scores,
        image_ids=tuple(candidates),
        per_image=per_image | means,
        bleu=bleu,
        tokeniser=chosen,
        meteor=rows,
        notes=notes + _undefined_notes(scores, kind),
        signature=signature(chosen, language, texts[1], None if rows is None else str(tables)),
        tables=tables,
        verdict=verdict(candidates),
        right=right,
    )


def score_interval(a: CaptionScores, metric: str) -> Interval:
    """Computes the 95 % interval of one system's score.

    Images are drawn with replacement and each draw is scored: BLEU and METEOR from summed
    statistics, other metrics as means over images, CIDEr with the document frequencies of the
    whole set. The ends are percentiles of these scores; for fewer than 250 images they are
    corrected for bias and skewness (BCa).

    Returns:
        All NaN if the score is undefined, the ends if there are fewer than `FEW` images. A draw
        whose BLEU is undefined counts as 0, the limit of fewer and fewer matches.

    References:
        Koehn (2004), "Statistical Significance Tests for Machine Translation Evaluation"; Efron
        (1987), "Better Bootstrap Confidence Intervals".
    """
    return paired_over_seeds([a], [], metric)


def paired_over_seeds(
    a: Sequence[CaptionScores], b: Sequence[CaptionScores], metric: str
) -> Interval:
    """Computes the interval of the difference of two mean scores over runs of several seeds.

    All runs are scored on the same images, in one order, and on the same draws of them; the seeds
    themselves are not drawn. The difference is undefined, all NaN, if the score of one of the runs
    is. Everything else as for `score_interval`.
    """
    if any(math.isnan(one.scores.get(metric, 0.0)) for one in (*a, *b)):
        return UNDEFINED
    shares = [(1 / len(a), one) for one in a] + [(-1 / len(b), one) for one in b]
    return interval_over_images(
        lambda weights: sum(share * _resampled(one, metric, weights) for share, one in shares),
        len(a[0].image_ids),
    )


def _resampled(scores: CaptionScores, metric: str, weights: np.ndarray) -> np.ndarray:
    """Computes the metric `[S]` if image n counts `weights[s, n]` times."""
    if metric.startswith("bleu") or metric == "brevity_ratio":
        return np.nan_to_num(bleu_scores(weights @ scores.bleu)[metric])
    if metric == "meteor":
        return meteor_scores(weights @ scores.meteor, scores.tables)
    return weights @ scores.per_image[metric] / weights.sum(axis=1)


def verdict(captions: Mapping[str, str]) -> tuple[str, ...]:
    """Returns a sentence if most of ten images or more get the same caption."""
    if len(captions) < _FEW_IMAGES:
        return ()
    ((text, count),) = collections.Counter(captions.values()).most_common(1)
    if count <= _SAME * len(captions):
        return ()
    same = f"{100 * count / len(captions):.0f} % of the images get the same caption, {text!r}"
    return (f"{same}: train longer or add data.",)


def _undefined_notes(scores: Mapping[str, float], unit: str) -> list[str]:
    """Returns sentences on the scores that are undefined."""
    found = []
    if orders := [n for n in range(1, ORDERS + 1) if math.isnan(scores[f"bleu_{n}"])]:
        run = f"{orders[0]} {unit} in a row" if orders[0] > 1 else f"any of its {unit}"
        names, verb = ", ".join(f"BLEU-{n}" for n in orders), "is" if len(orders) == 1 else "are"
        found.append(f"{names} {verb} undefined: no caption has {run} in common with a reference.")
    if math.isnan(scores["cider"]):
        found.append(
            "CIDEr is undefined: these images have all n-grams of their references in common."
        )
    return found
