"""Teachers of a captioner: what taught it beside the captions, in its run or before it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sat_tf import published
from sat_tf.errors import RunError
from sat_tf.run_folder import RunFolder
from training.config import RunConfig, read_run_config
from training.lineage import lineage
from training.run_state.ownership import BOXES, LOCATOR, recorded_teachers, supervised_by_locator

CAPTIONERS, REWARD = "captioners", "reward"


@dataclass(frozen=True)
class Teachers:
    """Teachers of a captioner: `boxes`, `locator`, `captioners` (distillation), `reward`.

    Attributes:
        own: Its own, the first ones first.
        inherited: Those of the captioners that it learned from.
    """

    own: tuple[str, ...]
    inherited: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """Own and inherited ones."""
        return tuple(dict.fromkeys((*self.own, *self.inherited)))


def teachers_of(run_dir: Path, config: RunConfig | None = None) -> Teachers:
    """Finds the teachers of a run and of those that it started from (`--init-from`).

    A published captioner records them. In one of an earlier version, boxes are assumed where it
    may have been a locator, and what taught its teachers is not known. Nor are runs that have been
    removed.

    Args:
        run_dir: The run, or a published captioner.
        config: Takes the place of the run's configuration.

    Raises:
        RunError: A published captioner names a teacher that this version does not know.
    """
    own, inherited = [], []
    for path in filter(Path.is_dir, reversed(lineage(run_dir))):
        recorded = _published_teachers(path)
        if recorded is not None:
            own += recorded.own
            inherited += recorded.inherited
            continue
        last = config is not None and path == Path(run_dir).resolve()
        trained = config if last else read_run_config(path)
        if trained.attention.supervision_weight:
            own.append(LOCATOR if supervised_by_locator(RunFolder(path)) else BOXES)
        if trained.fit.distillation_weight:
            own.append(CAPTIONERS)
            inherited += recorded_teachers(RunFolder(path))
        if trained.reward.metric != "none":
            own.append(REWARD)
    return Teachers(tuple(dict.fromkeys(own)), tuple(dict.fromkeys(inherited)))


def _published_teachers(path: Path) -> Teachers | None:
    """Returns the teachers that a published captioner records; None for others."""
    values = published.taught_by(path) if published.is_published(path) else None
    if values is None:
        return None
    found = Teachers(tuple(values["own"]), tuple(values["inherited"]))
    for name in found.all:
        if name not in (BOXES, LOCATOR, CAPTIONERS, REWARD):
            raise RunError(
                f"{path} was taught by {name!r}, unknown to this version: update sat_tf."
            )
    return found
