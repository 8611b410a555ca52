"""Features that a configuration asks for, as objects: each is imported only if a run uses it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sat_tf.captioner import Captioner
from sat_tf.objectives import make_objective
from sat_tf.objectives.terms import Objective
from sat_tf.vocabulary import Vocabulary
from training.config import RunConfig
from training.data.captions import CaptionTable
from training.inputs import Data, Teacher
from training.model import new_model


def first_model(config: RunConfig, data: Data, begun: bool = False, **options: Any) -> Captioner:
    """Builds a run's model with its first weights: new ones, or those of `init_from`.

    Args:
        config: The run's configuration.
        data: The run's data.
        begun: The run has a checkpoint, whose weights it takes: the files and the run that it
            started from may be gone.
        **options: `strategy` of `new_model`; `say`, which receives a message about the other run.

    Raises:
        ValueError: See `first_weights.start_from`.
    """
    say = options.pop("say", print)
    origin = None if begun else config.init_from
    size, own = len(data.vocabulary), not begun and origin is None
    model = new_model(config.captioner, size, config.fit.precision, own, **options)
    if origin is not None:
        from training.first_weights import learn_on

        say(learn_on(origin, model, data))
    return model


def teachers_of(config: RunConfig) -> list[Teacher]:
    """Returns what teaches beside the captions."""
    attention, fit = config.attention, config.fit
    file = Path(attention.teacher) if attention.teacher else None
    teachers: list[Teacher] = []
    if attention.located:
        from training.teach.word_locator import LocatorTeacher

        teachers.append(LocatorTeacher(file))
    elif attention.supervision_weight:
        from training.teach.attention_targets import BoxTeacher

        teachers.append(BoxTeacher(file))
    if fit.distillation_weight:
        from training.teach.word_predictions import PredictionTeacher

        teachers.append(PredictionTeacher(Path(fit.predictions), fit.distillation_weight))
    return teachers


def objective_of(config: RunConfig, table: CaptionTable, vocabulary: Vocabulary) -> Objective:
    """Returns what training minimises: the captions' loss, or a reward of sampled captions."""
    if config.reward.metric == "none":
        fit = config.fit
        return make_objective(config.attention, fit.label_smoothing, fit.distillation_weight)
    from training.teach.rewards import reward_objective

    parts = config.reward, config.attention, config.search
    return reward_objective(*parts, table, vocabulary, config.data.language)


def bounds_of(config: RunConfig) -> Callable | None:
    """Returns what measures the bounds of hard attention after each epoch; None without."""
    if config.attention.kind != "hard":
        return None
    from training.evaluate.bounds import quick_bounds

    return quick_bounds


def kept_words_of(config: RunConfig, run_dir: Path | None = None) -> dict[str, str]:
    """Returns words of `init_from` that the captions may lack, see `keep_words`."""
    if not config.keep_words:
        return {}
    from training.first_weights import kept_words

    return kept_words(config.init_from, config.data, run_dir)
