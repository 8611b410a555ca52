"""What a run with a reward is trained for; one without is trained word by word."""

from __future__ import annotations

import dataclasses

import numpy as np

from sat_tf.models.sequence import Reward, SequenceObjective
from training.datasets.batches import CaptionTable
from training.metrics.bleu_reward import BleuReward
from training.metrics.cider_reward import CiderReward
from training.recipes import RewardConfig, RunConfig


def sequence_of(config: RunConfig, table: CaptionTable) -> SequenceObjective | None:
    """The objective of captions that are drawn, by the training captions; None without a reward."""
    reward = config.reward
    if reward.metric == "none":
        return None
    search = dataclasses.replace(config.search, max_length=reward.max_length)
    return SequenceObjective(reward_of(reward, table), reward.samples, config.attention, search)


def reward_of(config: RewardConfig, table: CaptionTable) -> Reward:
    """What a caption is worth: the metric, and BLEU's precisions where they have a weight."""
    cider = CiderReward.of(table)
    if not config.bleu_weight:
        return cider
    bleu, weight = BleuReward.of(table), np.float32(config.bleu_weight)
    return lambda pictures, captions: cider(pictures, captions) + weight * bleu(pictures, captions)
