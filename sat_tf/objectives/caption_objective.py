"""The objective of training on given captions, by the kind of attention."""

from __future__ import annotations

from sat_tf.config import AttentionConfig
from sat_tf.objectives.hard_attention_objective import HardAttentionObjective
from sat_tf.objectives.likelihood_objective import LikelihoodObjective


def caption_objective(
    attention: AttentionConfig, label_smoothing: float = 0.0, distillation_weight: float = 0.0
) -> LikelihoodObjective:
    """Makes the objective that a configuration of attention asks for.

    Args:
        attention: The configuration.
        label_smoothing: Share of the target spread over the vocabulary, in [0, 1).
        distillation_weight: Share of the target that other captioners predict, in [0, 1].

    Raises:
        ValueError: A share is out of its range.
    """
    kind = HardAttentionObjective if attention.kind == "hard" else LikelihoodObjective
    return kind(attention, label_smoothing, distillation_weight)
