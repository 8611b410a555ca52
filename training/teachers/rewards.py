"""Rewards of sequence-level training: CIDEr-D, BLEU's precisions, METEOR."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Sequence
from operator import or_

import numpy as np

from sat_tf.config import AttentionConfig, SearchConfig
from sat_tf.objectives.reward import Reward, RewardObjective
from sat_tf.scores.meteor_scoring import meteor_of
from sat_tf.scores.ngrams import ORDERS, CiderD, Gram, count_grams
from sat_tf.text.vocabulary import END, SPECIAL_TOKENS, START, Vocabulary
from training.data.captions import CaptionTable
from training.run.config import RewardConfig

_SCALE = 10.0  # that of the published CIDEr-D


def reward_objective(
    reward: RewardConfig,
    attention: AttentionConfig,
    search: SearchConfig,
    table: CaptionTable,
    vocabulary: Vocabulary,
    language: str,
) -> RewardObjective:
    """Makes the objective of captions that are sampled with the other settings of a search."""
    score = reward_of(reward, table, vocabulary, language)
    search = dataclasses.replace(search, max_length=reward.max_length)
    return RewardObjective(score, reward.samples, attention, search)


def reward_of(
    config: RewardConfig, table: CaptionTable, vocabulary: Vocabulary, language: str = "en"
) -> Reward:
    """Makes the reward: CIDEr-D, plus BLEU's precisions and METEOR if they have a weight.

    Raises:
        TablesError: METEOR has a weight and no tables.
    """
    references = references_of(table)
    rewards: list[tuple[float, Reward]] = [(1.0, CiderReward(references))]
    if config.bleu_weight:
        rewards.append((config.bleu_weight, BleuReward(references)))
    if config.meteor_weight:
        rewards.append((config.meteor_weight, MeteorReward(table, vocabulary, language)))

    def score(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        return sum(np.float32(weight) * reward(images, captions) for weight, reward in rewards)

    return score


def references_of(table: CaptionTable) -> list[list[np.ndarray]]:
    """Lists the captions of each image, as in `table.image_index`; some may have none."""
    references: list[list[np.ndarray]] = [[] for _ in range(int(table.image_index.max()) + 1)]
    for image, tokens in zip(table.image_index, table.tokens, strict=True):
        references[image].append(tokens)
    return references


class CaptionReward:
    """Reward of single captions under the reference captions of their images.

    A subclass is made from the references of each image, int arrays `<start> ... <end>`. Its
    `score(words, image)` is the reward of one caption, ids up to and with `<end>`.
    """

    def __call__(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """Computes the rewards of captions, float32 `[N]`.

        Args:
            images: int `[N]`, index of the image of each caption.
            captions: int `[N, T]`, ids; those after `<end>` do not count.
        """
        rewards = [
            self.score(words_of(caption), image)
            for image, caption in zip(images, captions, strict=True)
        ]
        return np.array(rewards, np.float32)


def words_of(caption: np.ndarray) -> list[int]:
    """Returns the ids without `<start>`, up to and with the first `<end>`."""
    words = [word for word in caption.tolist() if word != START]
    return words[: words.index(END) + 1] if END in words else words


class BleuReward(CaptionReward):
    """Mean n-gram precision of a caption under its image's training captions, 0 to 10.

    10 min(1, exp(1 - r / c)) mean_n p_n over orders n = 1..4

    p_n is BLEU's clipped precision, c the length of the caption and r that of the reference
    closest in length (the shorter of two). BLEU itself takes the geometric mean over a corpus,
    which is 0 for most single captions. `<end>` counts as a word, as in `CiderReward`.

    References:
        Papineni et al. (2002), "BLEU: a Method for Automatic Evaluation of Machine Translation".
    """

    def __init__(self, references: Sequence[Sequence[np.ndarray]]) -> None:
        captions = [[*map(words_of, group)] for group in references]
        none: Counter[Gram] = Counter()
        self._most = [functools.reduce(or_, map(count_grams, group), none) for group in captions]
        self._lengths = [sorted(map(len, group)) for group in captions]

    def score(self, words: Sequence[int], image: int) -> float:
        """Computes the brevity penalty times the mean precision, 0 to 10."""
        length, correct = len(words), [0] * ORDERS
        for gram, count in count_grams(words).items():
            correct[len(gram) - 1] += min(count, self._most[image][gram])
        # A caption of three words has no n-gram of four words: precision 0.
        precisions = [right / max(length - n, 1) for n, right in enumerate(correct)]
        closest = min(self._lengths[image], key=lambda other: abs(other - length))
        penalty = math.exp(min(0.0, 1.0 - closest / length))
        return _SCALE * penalty * sum(precisions) / ORDERS


class CiderReward(CaptionReward):
    """CIDEr-D of captions of training images, 0 to 10; see `CiderD`.

    `<end>` counts as a word: otherwise a caption that breaks off ("a man on a") would score like
    one that ends.

    References:
        Vedantam et al. (2015), arXiv:1411.5726; Rennie et al. (2017), arXiv:1612.00563, as reward.
    """

    def __init__(self, references: Sequence[Sequence[np.ndarray]]) -> None:
        counts = [[count_grams(words_of(caption)) for caption in group] for group in references]
        self._cider = CiderD(counts)
        self._references = [[*map(self._cider.vectors, captions)] for captions in counts]

    def score(self, words: Sequence[int], image: int) -> float:
        """Computes CIDEr-D, 0 to 10."""
        caption = self._cider.vectors(count_grams(words))
        return self._cider.score(caption, self._references[image])


class MeteorReward:
    """METEOR of single captions under their image's training captions, 0 to 10.

    As in an evaluation. Unlike `CiderReward` it does not see `<end>`, and a caption that breaks off
    loses only for missing words.

    Args:
        table: The captions; images as in `table.image_index`.
        vocabulary: Their words.
        language: Language code, for METEOR's tables.

    Raises:
        TablesError: METEOR's tables are missing.

    References:
        Denkowski and Lavie (2014), "Meteor Universal: Language Specific Translation Evaluation for
        Any Target Language".
    """

    def __init__(self, table: CaptionTable, vocabulary: Vocabulary, language: str = "en") -> None:
        self._vocabulary = vocabulary
        self._references = [[*map(self._text, group)] for group in references_of(table)]
        self._meteor = meteor_of(language)

    def __call__(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """Computes the rewards of captions, float32 `[N]`; see `CaptionReward`."""
        references = [self._references[image] for image in images]
        scores = self._meteor.scores([*map(self._text, captions)], references)
        return (_SCALE * scores / 100.0).astype(np.float32)

    def _text(self, caption: np.ndarray) -> str:
        # Without <unk>, which two captions would seem to share.
        ids = (id for id in words_of(caption) if id >= len(SPECIAL_TOKENS))
        return " ".join(self._vocabulary.words[id] for id in ids)
