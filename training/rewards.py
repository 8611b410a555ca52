"""What a run with a reward is trained for; one without is trained word by word."""

from __future__ import annotations

import dataclasses

from sat_tf.models.sequence import SequenceObjective
from training.datasets.batches import CaptionTable
from training.metrics.cider_reward import CiderReward
from training.recipes import RunConfig


def sequence_of(config: RunConfig, table: CaptionTable) -> SequenceObjective | None:
    """The objective of captions that are drawn, by the training captions; None without a reward."""
    reward = config.reward
    if reward.metric == "none":
        return None
    search = dataclasses.replace(config.search, max_length=reward.max_length)
    return SequenceObjective(CiderReward.of(table), reward.samples, config.attention, search)
