"""BLEU, METEOR, CIDEr and ROUGE-L of generated captions by pycocoevalcap, on the 0-100 scale.

The contribution of each image is kept, so that corpus scores can be recomputed for any resample of
the images, which gives their intervals. The Java programs run through `java.py`: pycocoevalcap's
own wrappers write into the installed package and wait forever for a dead process.
"""

from __future__ import annotations

import collections
import importlib.metadata
import math
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from sat_tf.errors import invalid_value
from sat_tf.tokens import Segmenter, Unit, default_segmenter, primary
from training.metrics import java
from training.metrics.bootstrap import (
    UNDEFINED,
    Interval,
    few_images_note,
    interval_over_images,
)
from training.metrics.cider import CiderD, count_grams
from training.metrics.java import (
    ENGLISH,
    JavaError,
    Tables,
    meteor_scores,
    meteor_statistics,
    tables_of,
)
from training.metrics.score_tokens import (
    NOT_WORDS,
    OVER_CHARACTERS,
    UNSPLIT,
    ScoreTokens,
    default_tokens,
    split_lines,
    tokens_version,
)

BLEU_ORDERS = 4
# pycocoevalcap's guards against division by zero, so that scores agree to the last digit.
_TINY, _SMALL = 1e-15, 1e-9
_NO_METEOR = "METEOR is left out: it needs Java."
_WITH_INTERVALS = ("bleu_4", "meteor", "cider")
_FEW_IMAGES, _SAME = 10, 0.5
_ERRORS = 2.0  # standard errors by which captions have to fit their own images better
_HARDLY = 0.2  # of the words that fit no other image: what people write has 0.5 (Flickr8k)
MOST_DOCUMENTS = 30_000
"""Images whose captions give document frequencies: more would take a gigabyte for the same."""


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
        bleu: `[N, 10]` statistics whose sums give corpus BLEU (`bleu_scores`).
        tokeniser: Name of what split the captions, one of `ScoreTokens`.
        meteor: `[N, 23]` statistics that give corpus METEOR (`meteor_scores`), or None.
        notes: Sentences for the report: what was left out, and why.
        versions: Versions of the programs behind the scores.
        signature: What scores have to share to be compared, in a line like sacrebleu's.
        tables: METEOR's tables.
        verdict: A sentence on whether captions fit their own images, see `verdict`.
    """

    scores: dict[str, float]
    image_ids: tuple[str, ...]
    per_image: dict[str, np.ndarray]
    bleu: np.ndarray
    tokeniser: str
    meteor: np.ndarray | None = None
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    signature: str = ""
    tables: Tables = ENGLISH
    verdict: tuple[str, ...] = ()

    def details(self) -> dict[str, Any]:
        """Returns the part of a report that is about them, with intervals."""
        measured = [name for name in _WITH_INTERVALS if name in self.scores]
        return {
            "images": len(self.image_ids),
            "tokeniser": self.tokeniser,
            "signature": self.signature,
            "scores": dict(self.scores),
            "intervals": {name: score_interval(self, name) for name in measured},
            "metric_versions": self.versions,
            "notes": [*self.notes, *few_images_note(len(self.image_ids))],
        }


def bleu_scores(totals: np.ndarray) -> dict[str, np.ndarray]:
    """Computes corpus BLEU from summed statistics, for any number of corpora at once.

    BLEU-n = min(1, exp(1 - 1/ratio)) * (prod_{k<=n} correct_k / guess_k)^(1/n), with ratio =
    length / closest reference length; `_no_bp` omits the first factor. Both are NaN, undefined, if
    no k-gram of some order k <= n matches, as the geometric mean then has no logarithm.

    Args:
        totals: `[..., 10]`, sums over images of the clipped n-gram matches of the candidate by
            order (4), its n-grams by order (4), its words, and the words of the reference closest
            in length (the shorter of two).

    Returns:
        `bleu_n`, `bleu_n_no_bp` (0-100 or NaN) and `brevity_ratio`, each `[...]`.

    References:
        Papineni et al. (2002), "BLEU: a Method for Automatic Evaluation of Machine Translation".
    """
    correct, guess = totals[..., :BLEU_ORDERS], totals[..., BLEU_ORDERS : 2 * BLEU_ORDERS]
    length, reference_length = totals[..., -2], totals[..., -1]
    precision = np.where(correct > 0, (correct + _TINY) / (guess + _SMALL), np.nan)
    bleu = 100.0 * np.cumprod(precision, axis=-1) ** (1.0 / np.arange(1, BLEU_ORDERS + 1))
    ratio = (length + _TINY) / (reference_length + _SMALL)
    penalty = np.exp(np.minimum(0.0, 1.0 - 1.0 / ratio))
    result = {f"bleu_{n + 1}": bleu[..., n] * penalty for n in range(BLEU_ORDERS)}
    result |= {f"bleu_{n + 1}_no_bp": bleu[..., n] for n in range(BLEU_ORDERS)}
    return result | {"brevity_ratio": length / np.maximum(reference_length, _SMALL)}


def score_captions(
    candidates: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    *,
    meteor: bool | None = None,
    tokens: ScoreTokens | None = None,
    language: str = "en",
    unit: Unit = "words",
    segmenter: Segmenter = "spaces",
) -> CaptionScores:
    """Scores one caption per image against the reference captions of that image.

    Args:
        candidates: Image id -> caption. An empty caption matches nothing.
        references: Image id -> raw reference captions, at least one; the same ids.
        meteor: True requires METEOR, False skips it, None computes it if Java runs.
        tokens: What splits all captions; by default that of `default_tokens`, where "ptb" gives
            way to "simple" if Java does not run.
        language: Language code of the captions, such as "de".
        unit: How captions were split for the captioner, for the default of `tokens`.
        segmenter: The same.

    Returns:
        The scores; `notes` names what is missing.

    Raises:
        ValueError: Nothing to score, ids that differ, an image without references, METEOR
            required for scores over characters, or a package that splits is not installed.
        JavaError: `meteor=True` and METEOR did not run, or `tokens="ptb"` and Java did not.
    """
    _check(candidates, references)
    notes: list[str] = []
    default = default_tokens(language, unit, segmenter)
    try:
        found = tokenise(candidates, references, tokens or default, language)
    except JavaError as error:
        if tokens:
            raise
        notes.append(f"The simple tokeniser was used instead of PTB's: {error}")
        found = tokenise(candidates, references, "simple", language)
    if found.tokeniser in ("ptb", "simple") and default_segmenter(language) == "icu":
        notes.append(UNSPLIT)
    if characters := found.tokeniser in OVER_CHARACTERS:
        if meteor:
            expected = f"False or None for scores over {found.tokeniser!r} tokens"
            raise invalid_value("meteor", expected, True)
        meteor = False
        notes += [NOT_WORDS, "METEOR is left out: it is over words."]
    if empty := sum(not caption for caption in found.candidates):
        notes.append(f"{empty} of {len(candidates)} captions are empty and score 0.")
    bleu = _bleu_statistics(found)
    per_image = bleu_scores(bleu) | {"cider": _cider(found), "rouge_l": _rouge(found)}
    scores = {name: float(v) for name, v in bleu_scores(bleu.sum(axis=0)).items()}
    scores |= {name: float(np.mean(per_image[name])) for name in ("cider", "rouge_l")}
    undefined = _undefined_note(scores, "characters" if characters else "words")
    fit, rows, tables = verdict(candidates, found), None, tables_of(language)
    if meteor or meteor is None:
        try:
            rows = meteor_statistics(found.candidates, found.references, tables)
            per_image["meteor"] = meteor_scores(rows, tables)
            scores["meteor"] = float(meteor_scores(rows.sum(axis=0), tables))
        except JavaError as error:
            if meteor:
                raise
            notes.append(f"METEOR is left out: {error}" if java.find_java() else _NO_METEOR)
    return CaptionScores(
        scores,
        tuple(candidates),
        per_image,
        bleu,
        found.tokeniser,
        rows,
        notes + undefined,
        _versions(found.tokeniser, rows is not None),
        _signature(found, language, None if rows is None else tables),
        tables,
        fit,
    )


def _signature(found: TokenisedCaptions, language: str, tables: Tables | None) -> str:
    """Formats what scores have to share to be compared; of the versions, those that count."""
    fewest, most = (f({len(r) for r in found.references}) for f in (min, max))
    parts = {
        "lang": primary(language),
        "nrefs": most if fewest == most else f"{fewest}-{most}",
        "tok": f"{found.tokeniser}-{tokens_version(found.tokeniser)}",
        "case": "lc",
        "punct": "no",
    }
    if tables:
        parts["meteor"] = f"1.5-{tables}"
    parts["pycocoevalcap"] = importlib.metadata.version("pycocoevalcap")
    return "|".join(f"{name}:{value}" for name, value in parts.items())


def score_interval(a: CaptionScores, metric: str, samples: int = 1000, seed: int = 0) -> Interval:
    """Computes the 95 % interval of one system's score.

    Images are drawn with replacement and each draw is scored: BLEU and METEOR from summed
    statistics, other metrics as means over images, CIDEr with the document frequencies of the
    whole set. The ends are percentiles of these scores; for fewer than 250 images they are
    corrected for bias and skewness (BCa). Of nominal 95 % intervals of BLEU-4 on 100 made-up
    images (tests/training/metrics/test_bootstrap.py), 92 % covered the truth without the
    correction and 94 % with it.

    Args:
        a: Scores with their statistics.
        metric: Key of `a.per_image`.
        samples: Number of resamples, at least 1.
        seed: Seed of the draws; the same seed and number of images give the same draws.

    Returns:
        Estimate, low, high, on the scale of the metric; all NaN if the score is undefined, the ends
        if there are fewer than `FEW` images. A draw whose BLEU is undefined counts as 0, the limit
        of fewer and fewer matches.

    Raises:
        ValueError: Unknown metric, or arguments out of range.

    References:
        Koehn (2004), "Statistical Significance Tests for Machine Translation Evaluation"; Efron
        (1987), "Better Bootstrap Confidence Intervals".
    """
    return _interval([a], [1.0], metric, samples, seed)


def paired_over_seeds(
    a: Sequence[CaptionScores],
    b: Sequence[CaptionScores],
    metric: str,
    samples: int = 1000,
) -> Interval:
    """Computes the interval of the difference of two mean scores over runs of several seeds.

    All runs are scored on the same draws of images; the seeds themselves are not drawn. The
    difference is undefined, all NaN, if the score of one of the runs is.

    Args:
        a: Scores of each run of the first system.
        b: Scores of each run of the second.
        metric: See `score_interval`, as for all else.
        samples: Number of resamples.

    Raises:
        ValueError: As `score_interval`, or systems scored on different images or in another
            language or by another tokeniser.
    """
    shares = [1 / len(a)] * len(a) + [-1 / len(b)] * len(b)
    return _interval([*a, *b], shares, metric, samples)


def _interval(
    scores: Sequence[CaptionScores],
    shares: Sequence[float],
    metric: str,
    samples: int,
    seed: int = 0,
) -> Interval:
    """Computes the interval of a sum of scores, each with its share."""
    orders = [_order(scores[0], one) for one in scores]
    if any(math.isnan(one.scores.get(metric, 0.0)) for one in scores):
        return UNDEFINED

    def total(weights: np.ndarray) -> np.ndarray:
        parts = zip(scores, orders, shares, strict=True)
        return sum(share * _resampled(one, metric, order, weights) for one, order, share in parts)

    return interval_over_images(total, len(scores[0].image_ids), samples, seed)


def _order(a: CaptionScores, b: CaptionScores) -> np.ndarray:
    """Returns the place in `b` of each image of `a`."""
    if (a.tokeniser, a.signature) != (b.tokeniser, b.signature):
        wanted, got = (one.signature or one.tokeniser for one in (a, b))
        raise invalid_value("b", f"scores with the signature of `a` ({wanted})", got)
    if different := set(a.image_ids) ^ set(b.image_ids):
        got = f"{len(different)} images found in one only"
        raise invalid_value("b", "scores of the images of `a`", got)
    position = {image: n for n, image in enumerate(b.image_ids)}
    return np.array([position[image] for image in a.image_ids])


def _resampled(
    scores: CaptionScores, metric: str, order: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Computes the metric `[S]` if image n counts `weights[s, n]` times."""
    if metric not in scores.per_image:
        raise invalid_value("metric", f"one of {', '.join(scores.per_image)}", repr(metric))
    if metric.startswith("bleu") or metric == "brevity_ratio":
        return np.nan_to_num(bleu_scores(weights @ scores.bleu[order])[metric])
    if metric == "meteor":
        return meteor_scores(weights @ scores.meteor[order], scores.tables)
    return weights @ scores.per_image[metric][order] / weights.sum(axis=1)


def verdict(captions: Mapping[str, str], tokens: TokenisedCaptions) -> tuple[str, ...]:
    """Returns a sentence on whether captions fit their own images; none for under ten images.

    Compares the share of a caption's words that the references of its image have with the share
    that those of the next image have: first, whether it is larger at all, then, by how much of what
    it could be.

    Args:
        captions: Image id -> caption.
        tokens: The same in tokens, with their references.
    """
    if len(captions) < _FEW_IMAGES:
        return ()
    ((text, count),) = collections.Counter(captions.values()).most_common(1)
    if count > _SAME * len(captions):
        same = f"{100 * count / len(captions):.0f} % of the images get the same caption, {text!r}"
        return (f"{same}: train longer or add data.",)
    used = [set(caption.split()) for caption in tokens.candidates]
    known = [{word for text in own for word in text.split()} for own in tokens.references]
    own, other = (
        np.array([len(a & b) / max(1, len(a)) for a, b in zip(used, sets, strict=True)])
        for sets in (known, known[1:] + known[:1])
    )
    unit = "characters" if tokens.tokeniser in OVER_CHARACTERS else "words"
    gain = own - other
    shares = (
        f"{100 * own.mean():.0f} % of the {unit} of a caption are in the references of its image, "
        f"{100 * other.mean():.0f} % in those of another"
    )
    if gain.mean() <= _ERRORS * gain.std() / len(gain) ** 0.5:
        return (f"The captions fit other images as well: {shares}. Train longer or add data.",)
    if gain.mean() < _HARDLY * (1.0 - other.mean()):
        return (f"The captions hardly depend on the image: {shares}. Train longer or add data.",)
    return (f"The captions fit their own images: {shares}.",)


def quick_scores(
    candidates: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    tokens: ScoreTokens = "simple",
    language: str = "en",
    frequencies: CiderD | None = None,
) -> dict[str, float]:
    """Computes `bleu_1` ... `bleu_4` and `cider` (0-100 or NaN) without Java, for every epoch.

    Args:
        candidates: Image id -> caption.
        references: Image id -> raw reference captions.
        tokens: What splits all captions; see `quick_tokens`.
        language: Language code of the captions.
        frequencies: Document frequencies, of `caption_frequencies`; those of `references` by
            default, as in reports. Scores of other images, or of fewer, are on another scale then.
    """
    _check(candidates, references)
    found = tokenise(candidates, references, tokens, language)
    bleu = bleu_scores(_bleu_statistics(found).sum(axis=0))
    scores = {f"bleu_{n}": float(bleu[f"bleu_{n}"]) for n in range(1, BLEU_ORDERS + 1)}
    if frequencies is None:
        return scores | {"cider": float(np.mean(_cider(found)))}
    parts = []
    for caption, others in zip(found.candidates, found.references, strict=True):
        own, *theirs = (
            frequencies.vectors(count_grams(text.split())) for text in (caption, *others)
        )
        parts.append(frequencies.score(own, theirs))
    return scores | {"cider": 100.0 * float(np.mean(parts))}


def caption_frequencies(
    captions: Sequence[Sequence[str]], tokens: ScoreTokens = "simple", language: str = "en"
) -> CiderD:
    """Returns the document frequencies of the captions of images, evenly chosen if they are many.

    Args:
        captions: Raw captions of each image.
        tokens: What splits them.
        language: Their language code.
    """
    every = -(-len(captions) // MOST_DOCUMENTS) or 1
    split = (split_lines(tokens, own, language) for own in captions[::every])
    return CiderD([count_grams(text.split()) for text in lines] for lines in split)


def quick_tokens(**splitting) -> ScoreTokens:
    """Returns the tokeniser of the scores after each epoch: `default_tokens` without Java."""
    found = default_tokens(**splitting)
    return "simple" if found == "ptb" else found


class TokenisedCaptions(NamedTuple):
    """Captions whose tokens are separated by spaces.

    Attributes:
        tokeniser: Name of what split them.
        candidates: `N` captions.
        references: `N` lists of reference captions.
    """

    tokeniser: ScoreTokens
    candidates: list[str]
    references: list[list[str]]


def tokenise(
    candidates: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    tokens: ScoreTokens = "simple",
    language: str = "en",
) -> TokenisedCaptions:
    """Splits captions and their references; errors are those of `split_lines`."""
    lines = [*candidates.values(), *(r for image in candidates for r in references[image])]
    split = iter(split_lines(tokens, lines, language))
    own = [next(split) for _ in candidates]
    return TokenisedCaptions(
        tokens, own, [[next(split) for _ in references[image]] for image in candidates]
    )


def note_on_scores(**splitting) -> str | None:
    """Returns a sentence on what the scores of such captions cannot tell; None if there is none."""
    if default_tokens(**splitting) in OVER_CHARACTERS:
        return NOT_WORDS
    return None if java.find_java() else _NO_METEOR


def _check(candidates: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> None:
    if not candidates:
        raise invalid_value("candidates", "a caption for at least one image", "none")
    if different := sorted(set(candidates) ^ set(references)):
        got = f"{len(different)} found in one only, such as {different[0]!r}"
        raise invalid_value("references", "the images of `candidates`", got)
    if bare := [image for image in candidates if not references[image]]:
        expected = "at least one reference per image"
        raise invalid_value("references", expected, f"none for {bare[0]!r}")


def _undefined_note(scores: Mapping[str, float], unit: Unit) -> list[str]:
    """Returns sentences on the scores that are undefined."""
    cider = "CIDEr is undefined: these images have all n-grams of their references in common."
    found = [cider] if math.isnan(scores["cider"]) else []
    orders = [n for n in range(1, BLEU_ORDERS + 1) if math.isnan(scores[f"bleu_{n}"])]
    if not orders:
        return found
    first = orders[0]
    run = f"{first} {unit} in a row" if first > 1 else f"any of its {unit}"
    names, verb = ", ".join(f"BLEU-{n}" for n in orders), "is" if len(orders) == 1 else "are"
    return [f"{names} {verb} undefined: no caption has {run} in common with a reference.", *found]


def _bleu_statistics(tokens: TokenisedCaptions) -> np.ndarray:
    """Computes the contribution of each image to the totals of `bleu_scores`, `[N, 10]`."""
    from pycocoevalcap.bleu.bleu_scorer import BleuScorer

    scorer = BleuScorer(n=BLEU_ORDERS)
    for caption, references in zip(tokens.candidates, tokens.references, strict=True):
        scorer += (caption, references)
    parts = scorer.ctest
    closest = [min((abs(n - p["testlen"]), n) for n in p["reflen"])[1] for p in parts]
    rows = [
        [*part["correct"], *part["guess"], part["testlen"], length]
        for part, length in zip(parts, closest, strict=True)
    ]
    return np.array(rows, np.float64)


def _cider(tokens: TokenisedCaptions) -> np.ndarray:
    """Returns the CIDEr of each image; all NaN where no n-gram tells one image from another."""
    from pycocoevalcap.cider.cider_scorer import CiderScorer

    scorer, count = CiderScorer(), len(tokens.candidates)
    for caption, references in zip(tokens.candidates, tokens.references, strict=True):
        scorer += (caption, references)
    # pycocoevalcap fails on references without a word, and gives 0 if all n-grams weigh nothing.
    if not any(map(any, tokens.references)):
        return np.full(count, np.nan)
    scores = 100.0 * np.asarray(scorer.compute_score()[1], np.float64)
    # Asking for the frequency of an n-gram that no reference has makes it one of 0.
    found = filter(None, scorer.document_frequency.values())
    return scores if min(found) < count else np.full(count, np.nan)


def _rouge(tokens: TokenisedCaptions) -> np.ndarray:
    from pycocoevalcap.rouge.rouge import Rouge

    rouge = Rouge()
    # pycocoevalcap takes an empty caption for one empty word, which an empty reference matches.
    values = [
        rouge.calc_score([caption], references) if caption else 0.0
        for caption, references in zip(tokens.candidates, tokens.references, strict=True)
    ]
    return 100.0 * np.asarray(values, np.float64)


def _versions(tokeniser: ScoreTokens, with_meteor: bool) -> dict[str, str]:
    versions = {"pycocoevalcap": importlib.metadata.version("pycocoevalcap")}
    versions["tokeniser"] = f"{tokeniser} {tokens_version(tokeniser)}"
    if with_meteor:
        versions["meteor"] = "1.5"
    if tokeniser == "ptb" or with_meteor:
        command = [java.find_java(), "-version"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
        versions["java"] = found.group(1) if found else "unknown"
    return versions
