"""Training objectives: soft and hard attention's losses, rewards, and their estimators."""

from __future__ import annotations

from sat_tf.config import AttentionConfig
from sat_tf.objectives.likelihood import SoftObjective
from sat_tf.train_step import Objective


def make_objective(
    attention: AttentionConfig, label_smoothing: float = 0.0, distillation_weight: float = 0.0
) -> Objective:
    """Makes the objective of training on given captions that a configuration of attention asks for.

    Args:
        attention: The configuration.
        label_smoothing: Share of the target spread over the vocabulary, in [0, 1).
        distillation_weight: Share of the target that other captioners predict, in [0, 1].

    Raises:
        ValueError: A share is out of its range.
    """
    if attention.kind == "hard":
        from sat_tf.objectives.hard import HardObjective

        return HardObjective(attention, label_smoothing, distillation_weight)
    return SoftObjective(attention, label_smoothing, distillation_weight)
