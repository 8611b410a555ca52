"""Named configurations of the digit systems."""

from __future__ import annotations

import dataclasses

from sat_tf.digit_config import PortionsConfig
from training.digits.canvas_recipes import CANVAS_RECIPES
from training.digits.config import DigitFitConfig, DigitRunConfig, PortionsRun, StripsData
from training.recipes import BaseOptimizerConfig

_PORTIONS = PortionsRun(
    recipe="digits_soft",
    data=StripsData(shift=2),
    model=PortionsConfig(attention="soft", queries="one", dropout=0.5),
    optimizer=BaseOptimizerConfig(learning_rate=2e-3, schedule="cosine", warmup_epochs=0.2),
    fit=DigitFitConfig(epochs=6, batch_size=64),
)


# Ten questions a strip teach faster than one.
_FOUR_EPOCHS = dataclasses.replace(_PORTIONS.fit, epochs=4)


def _portions(name: str, fit: DigitFitConfig = _PORTIONS.fit, **model: str) -> PortionsRun:
    changed = dataclasses.replace(_PORTIONS.model, **model)
    return dataclasses.replace(_PORTIONS, recipe=name, model=changed, fit=fit)


RECIPES: dict[str, DigitRunConfig] = {
    config.recipe: config
    for config in (
        _PORTIONS,
        _portions("digits_hard", attention="hard"),
        _portions("digits_queries", _FOUR_EPOCHS, queries="all"),
        _portions("digits_queries_hard", _FOUR_EPOCHS, queries="all", attention="hard"),
        *CANVAS_RECIPES,
    )
}
