"""Features of a run as objects: each is imported only if the configuration asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sat_tf.objectives import make_objective
from sat_tf.text.vocabulary import Vocabulary
from sat_tf.train_step import Objective
from training.data.captions import CaptionTable
from training.data.inputs import Data, Origin, Teacher
from training.run.config import AttentionConfig, FitConfig, RunConfig


@dataclass(frozen=True)
class Features:
    """Features that a run has beside its data and a new model.

    Attributes:
        origin: The captioner that it starts from.
        teachers: What teaches beside the captions.
        objective: What is minimised, on given captions or on drawn ones that are rewarded.
        bounds: Measures the bounds of hard attention after each epoch.
    """

    origin: Origin | None
    teachers: Sequence[Teacher]
    objective: Objective
    bounds: Callable | None


def features_of(config: RunConfig, data: Data) -> Features:
    """Returns what a configuration asks for.

    Args:
        config: The run's configuration.
        data: The run's data.

    Raises:
        TablesError: METEOR is part of the reward and has no tables.
    """
    bounds = None
    if config.attention.kind == "hard":
        from training.evaluation.bounds import quick_bounds as bounds
    return Features(
        origin_of(config),
        teachers_of(config.attention, config.fit),
        objective_of(config, data.table, data.vocabulary),
        bounds,
    )


def origin_of(config: RunConfig) -> Origin | None:
    """Returns the captioner that a run starts from; None for new weights."""
    if config.init_from is None:
        return None
    from training.run.first_weights import TrainedOrigin

    return TrainedOrigin(config.init_from)


def teachers_of(attention: AttentionConfig, fit: FitConfig) -> list[Teacher]:
    """Returns what teaches beside the captions."""
    file = Path(attention.teacher) if attention.teacher else None
    teachers: list[Teacher] = []
    if attention.supervision_weight:
        from training.teachers.boxes import box_teacher

        teachers.append(box_teacher(file))
    if fit.distillation_weight:
        from training.teachers.distillation import prediction_teacher

        teachers.append(prediction_teacher(Path(fit.predictions), fit.distillation_weight))
    return teachers


def objective_of(config: RunConfig, table: CaptionTable, vocabulary: Vocabulary) -> Objective:
    """Returns the objective of given captions, or of captions that are drawn and rewarded."""
    if config.reward.metric == "none":
        fit = config.fit
        return make_objective(config.attention, fit.label_smoothing, fit.distillation_weight)
    from training.teachers.rewards import reward_objective

    parts = config.reward, config.attention, config.search
    return reward_objective(*parts, table, vocabulary, config.data.language)


def kept_words_of(config: RunConfig, run_dir: Path | None = None) -> dict[str, str]:
    """Returns words of `init_from` that the captions may lack, see `keep_words`."""
    if not config.keep_words:
        return {}
    from training.run.first_weights import kept_words

    return kept_words(config.init_from, config.data, run_dir)
