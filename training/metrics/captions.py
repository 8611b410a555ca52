"""BLEU, METEOR, CIDEr and ROUGE-L of free-running captions, by pycocoevalcap, on the 0-100 scale.

What each image contributes is kept, so that every corpus score can be computed again for any
resample of the images. Java programs (PTB tokeniser, METEOR) are driven by `java.py` rather than by
pycocoevalcap, whose wrappers write into the installed package and wait for ever on a dead process.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sat_tf.vocabulary import Unit, tokenize
from training.metrics.java import JavaError, ask_java, find_java
from training.metrics.meteor import meteor_scores, meteor_statistics

BLEU_ORDERS = 4
# pycocoevalcap's guards against division by zero, kept so that the scores agree to the last digit.
_TINY, _SMALL = 1e-15, 1e-9
_TOKENISER_SECONDS = 300.0


@dataclass(frozen=True, eq=False)
class BleuStatistics:
    """What each of `N` images adds to corpus BLEU.

    Attributes:
        correct: `[N, 4]` n-grams of the candidate found in a reference, clipped, by order.
        guess: `[N, 4]` n-grams of the candidate, by order.
        length: `[N]` words of the candidate.
        reference_length: `[N]` words of the reference closest in length (the shorter of two).
    """

    correct: np.ndarray
    guess: np.ndarray
    length: np.ndarray
    reference_length: np.ndarray

    def matrix(self) -> np.ndarray:
        """The statistics side by side, `[N, 10]`; rows add up to those of a corpus."""
        lengths = np.stack([self.length, self.reference_length], axis=1)
        return np.concatenate([self.correct, self.guess, lengths], axis=1).astype(np.float64)


@dataclass(frozen=True, eq=False)
class CaptionScores:
    """Scores of a set of captions.

    Attributes:
        scores: `bleu_1` ... `bleu_4`, `bleu_1_no_bp` ... (without brevity penalty),
            `brevity_ratio` (words of the candidates / words of the closest references), `meteor`
            (absent when it could not run), `cider`, `rouge_l`. 0-100, except `brevity_ratio`.
        image_ids: The images, in the order of every array.
        per_image: Metric -> `[N]`, the score of each image by itself, same scales. `cider` and
            `rouge_l` are the means of theirs; BLEU and METEOR of the corpus are not.
        bleu: Statistics from which corpus BLEU follows.
        tokeniser: "ptb" (Stanford PTB tokeniser, punctuation dropped), "simple" or "characters".
        meteor: `[N, 23]` statistics from which corpus METEOR follows (`meteor_scores`), or None.
        notes: Sentences for the report: what was left out, and why.
        versions: Versions of the programs behind the scores.
    """

    scores: dict[str, float]
    image_ids: tuple[str, ...]
    per_image: dict[str, np.ndarray]
    bleu: BleuStatistics
    tokeniser: str
    meteor: np.ndarray | None = None
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)


def bleu_scores(totals: np.ndarray) -> dict[str, np.ndarray]:
    """Corpus BLEU from summed statistics, for any number of corpora at once.

    BLEU-n = min(1, exp(1 - 1/ratio)) * (prod_{k<=n} correct_k / guess_k)^(1/n), with ratio =
    length / closest reference length; `_no_bp` leaves the first factor out.

    Args:
        totals: `[..., 10]`, sums of rows of `BleuStatistics.matrix`.

    Returns:
        `bleu_n`, `bleu_n_no_bp` (0-100) and `brevity_ratio`, each `[...]`.

    References:
        Papineni et al. (2002), "BLEU: a Method for Automatic Evaluation of Machine Translation".
    """
    correct, guess = totals[..., :BLEU_ORDERS], totals[..., BLEU_ORDERS : 2 * BLEU_ORDERS]
    length, reference_length = totals[..., -2], totals[..., -1]
    precision = (correct + _TINY) / (guess + _SMALL)
    bleu = np.cumprod(precision, axis=-1) ** (1.0 / np.arange(1, BLEU_ORDERS + 1))
    bleu = 100.0 * np.where(length[..., None] > 0, bleu, 0.0)
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
    language: str = "en",
    unit: Unit = "words",
) -> CaptionScores:
    """Scores one caption an image against that image's references.

    Args:
        candidates: Image id -> the caption. An empty caption scores 0.
        references: Image id -> raw reference captions, one or more; the same ids.
        meteor: True requires METEOR, False skips it, None computes it where Java runs.
        language: Of the captions, a code such as "de". METEOR and the PTB tokeniser are for English
            words; other captions go without.
        unit: What n-grams are made of: "words" or "characters".

    Returns:
        The scores; `notes` names what is missing.

    Raises:
        ValueError: Nothing to score, ids that differ, an image without references, or METEOR
            required of captions that are not English words.
        JavaError: `meteor=True` and METEOR did not run.
    """
    _check(candidates, references)
    foreign = _foreign(language, unit)
    if foreign and meteor:
        raise ValueError(
            "Received an invalid value for argument `meteor`: expected False or None, since "
            f"{foreign}, got True."
        )
    java, notes = None if foreign else find_java(), []
    if foreign:
        notes.append(note_on_language(language, unit))
    elif java is None:
        notes.append("Java was not found: the simple tokeniser was used.")
        if meteor is None:
            notes.append("METEOR is left out: it needs Java.")
    tokeniser, words, reference_words = _tokenise(candidates, references, java, unit, notes)
    empty = sum(not caption for caption in words)
    if empty:
        notes.append(f"{empty} of {len(words)} captions are empty and score 0.")

    statistics = _bleu_statistics(words, reference_words)
    per_image = bleu_scores(statistics.matrix())
    per_image["cider"] = _cider(words, reference_words)
    per_image["rouge_l"] = _rouge(words, reference_words)
    scores = {name: float(v) for name, v in bleu_scores(statistics.matrix().sum(0)).items()}
    meteor_rows = None
    if meteor or (meteor is None and java is not None):
        try:
            meteor_rows = meteor_statistics(java, words, reference_words)
            per_image["meteor"] = meteor_scores(meteor_rows)
            scores["meteor"] = float(meteor_scores(meteor_rows.sum(axis=0)))
        except JavaError as error:
            if meteor:
                raise
            notes.append(f"METEOR is left out: {error}")
    scores |= {name: float(np.mean(per_image[name])) for name in ("cider", "rouge_l")}
    versions = _versions(java, tokeniser, meteor_rows is not None)
    ids = tuple(candidates)
    return CaptionScores(
        scores, ids, per_image, statistics, tokeniser, meteor_rows, notes, versions
    )


def quick_bleu(
    candidates: Mapping[str, str], references: Mapping[str, Sequence[str]], unit: Unit = "words"
) -> dict[str, float]:
    """Corpus `bleu_1` ... `bleu_4` (0-100) with the simple tokeniser: no Java, for every epoch."""
    _check(candidates, references)
    words, reference_words = _simple_tokens(candidates, references, unit)
    scores = bleu_scores(_bleu_statistics(words, reference_words).matrix().sum(0))
    return {f"bleu_{n}": float(scores[f"bleu_{n}"]) for n in range(1, BLEU_ORDERS + 1)}


def quick_cider(
    candidates: Mapping[str, str], references: Mapping[str, Sequence[str]], unit: Unit = "words"
) -> float:
    """CIDEr (0-100) with the simple tokeniser: no Java, for every epoch."""
    _check(candidates, references)
    return float(np.mean(_cider(*_simple_tokens(candidates, references, unit))))


def _check(candidates: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> None:
    if not candidates:
        raise ValueError(
            "Received an invalid value for argument `candidates`: expected a caption for at least "
            "one image, got none."
        )
    different = sorted(set(candidates) ^ set(references))
    if different:
        raise ValueError(
            "Received an invalid value for argument `references`: expected the images of "
            f"`candidates`, got {len(different)} found in one only, such as {different[0]!r}."
        )
    bare = [image for image in candidates if not references[image]]
    if bare:
        raise ValueError(
            "Received an invalid value for argument `references`: expected one reference or more "
            f"an image, got none for {bare[0]!r}."
        )


def note_on_language(language: str, unit: Unit) -> str | None:
    """What is left out of the scores of such captions, and why; None where nothing is."""
    foreign = _foreign(language, unit)
    if foreign is None:
        return None
    return f"METEOR and the PTB tokeniser, which are English, are left out: {foreign}."


def _foreign(language: str, unit: Unit) -> str | None:
    """Why programs made for English words do not serve; None where they do."""
    if unit == "characters":
        return "the scores are over characters, set apart by blanks, as is the custom for Chinese"
    if language.lower().split("-")[0] != "en":
        return f"the language of the captions (`--data.language`) is {language!r}"
    return None


def _tokenise(candidates, references, java, unit, notes):
    """Name of the tokeniser, `[N]` candidates and `[N]` lists of references, words by blanks."""
    if java is not None:
        counts = [len(references[image]) for image in candidates]
        lines = [*candidates.values(), *(r for image in candidates for r in references[image])]
        try:
            tokens = iter(_ptb_tokens(java, lines))
            words = [next(tokens) for _ in candidates]
            return "ptb", words, [[next(tokens) for _ in range(count)] for count in counts]
        except JavaError as error:
            notes.append(f"The simple tokeniser was used instead of PTB's: {error}")
    name = "simple" if unit == "words" else "characters"
    return name, *_simple_tokens(candidates, references, unit)


def _simple_tokens(candidates, references, unit):
    def tokens(caption: str) -> str:
        # Between words, a space is a character among others; it would be none in a BLEU n-gram.
        return " ".join(token for token in tokenize(caption, unit) if token != " ")

    words = [tokens(caption) for caption in candidates.values()]
    return words, [[tokens(r) for r in references[image]] for image in candidates]


def _ptb_tokens(java: str, lines: Sequence[str]) -> list[str]:
    """Each line in PTB tokens, lower-case, without punctuation, joined by blanks."""
    from pycocoevalcap.tokenizer import ptbtokenizer

    jar = Path(ptbtokenizer.__file__).with_name(ptbtokenizer.STANFORD_CORENLP_3_4_1_JAR)
    command = [java, "-cp", str(jar), "edu.stanford.nlp.process.PTBTokenizer"]
    command += ["-preserveLines", "-lowerCase", "-encoding", "UTF-8"]
    # Blanks of every kind become one space: a line break inside a caption would shift the rest.
    lines = [" ".join(line.split()) for line in lines]
    answers = ask_java(command, lines, _TOKENISER_SECONDS, "the PTB tokeniser")
    punctuation = set(ptbtokenizer.PUNCTUATIONS)
    return [" ".join(w for w in line.split() if w not in punctuation) for line in answers]


def _bleu_statistics(words: Sequence[str], references: Sequence[Sequence[str]]) -> BleuStatistics:
    from pycocoevalcap.bleu.bleu_scorer import BleuScorer

    scorer = BleuScorer(n=BLEU_ORDERS)
    for caption, captions in zip(words, references, strict=True):
        scorer += (caption, list(captions))
    parts = scorer.ctest
    closest = [min((abs(n - p["testlen"]), n) for n in p["reflen"])[1] for p in parts]
    return BleuStatistics(
        correct=np.array([p["correct"] for p in parts]),
        guess=np.array([p["guess"] for p in parts]),
        length=np.array([p["testlen"] for p in parts]),
        reference_length=np.array(closest),
    )


def _cider(words: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    from pycocoevalcap.cider.cider_scorer import CiderScorer

    if not any(r for captions in references for r in captions):
        return np.zeros(len(words))  # pycocoevalcap fails where no reference has a word
    scorer = CiderScorer()
    for caption, captions in zip(words, references, strict=True):
        scorer += (caption, list(captions))
    return 100.0 * np.asarray(scorer.compute_score()[1], np.float64)


def _rouge(words: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    from pycocoevalcap.rouge.rouge import Rouge

    rouge = Rouge()
    # pycocoevalcap counts an empty caption as one (empty) word, which an empty reference matches.
    values = [
        rouge.calc_score([caption], list(captions)) if caption else 0.0
        for caption, captions in zip(words, references, strict=True)
    ]
    return 100.0 * np.asarray(values, np.float64)


def _versions(java: str | None, tokeniser: str, with_meteor: bool) -> dict[str, str]:
    versions = {"pycocoevalcap": importlib.metadata.version("pycocoevalcap")}
    if tokeniser == "ptb":
        versions["tokeniser"] = "PTBTokenizer, Stanford CoreNLP 3.4.1"
    if with_meteor:
        versions["meteor"] = "1.5"
    if tokeniser == "ptb" or with_meteor:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
        found = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
        versions["java"] = found.group(1) if found else "unknown"
    return versions
