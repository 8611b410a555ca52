"""Teachers other than the captions: boxes, other captioners' predictions, rewards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sat_tf.train_step import Objective
    from training.data.inputs import Data, Teacher
    from training.run.config import AttentionConfig, FitConfig, RunConfig


def teachers_of(attention: AttentionConfig, fit: FitConfig) -> list[Teacher]:
    """Returns the other teachers than the captions; each is imported only then."""
    teachers: list[Teacher] = []
    if attention.supervision_weight:
        from training.teachers.boxes import box_teacher

        teachers.append(box_teacher(Path(attention.teacher) if attention.teacher else None))
    if fit.distillation_weight:
        from training.teachers.distillation import prediction_teacher

        teachers.append(prediction_teacher(Path(fit.predictions), fit.distillation_weight))
    return teachers


def objective_of(config: RunConfig, data: Data) -> Objective:
    """Returns the objective of given captions, or of sampled captions that are rewarded.

    Raises:
        TablesError: METEOR is part of the reward and has no tables.
    """
    if config.reward.metric == "none":
        from sat_tf.objectives import make_objective

        fit = config.fit
        return make_objective(config.attention, fit.label_smoothing, fit.distillation_weight)
    from training.teachers.rewards import reward_objective

    parts = config.reward, config.attention, config.search
    return reward_objective(*parts, data.table, data.vocabulary, config.data.language)
