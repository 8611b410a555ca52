"""Origins of a run: the runs that it started from, and teachers beside the captions."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from sat_tf.run_folder import RunFolder, read_average, read_object
from sat_tf.trained import published
from sat_tf.util.errors import RunError
from training.data.seen_images import read_seen
from training.run.config import read_run_config
from training.run.ownership import BOXES, recorded_origins, recorded_teachers

CAPTIONERS, REWARD = "captioners", "reward"


def lineage(run_dir: Path) -> list[Path]:
    """Returns a run and all that it started from: by `--init-from`, or as parts of an average.

    In the order of a depth-first search. A run that has been removed since is named, and what it
    started from is not known. Nor is it for a published captioner, which keeps the last part of a
    path only: here, another run or captioner may have that name.
    """
    found: list[Path] = []
    left = [published.locate(run_dir).resolve()]
    while left:
        path = left.pop(0)
        if path in found:
            continue
        try:
            origins = _origins(path)
        except ValueError:
            if not found:
                raise
            origins = []  # it is no run any more
        found.append(path)
        left[:0] = [_find(origin, path) for origin in origins]
    return found


def _origins(path: Path) -> list[str]:
    """Names what a run started from, as it was called then."""
    if published.is_published(path):
        return []
    if averaged := read_average(path):
        return list(averaged)
    origin = read_object(RunFolder(path).config).get("init_from")
    return [] if origin is None else [origin]


def _find(origin: str, run: Path) -> Path:
    """Returns the folder of an origin: where it was found then, or, if moved, near the run.

    A run without a record may have named it from any folder above the run.
    """
    recorded = recorded_origins(RunFolder(run)).get(origin)
    if recorded is not None and Path(recorded).is_dir():
        return Path(recorded)
    for folder in run.parents:
        if (folder / origin).is_dir():
            return (folder / origin).resolve()
    if recorded is not None:
        return Path(recorded)
    try:
        return published.locate(origin).resolve()
    except ValueError:
        return Path(origin).resolve()


def data_sets_of(run_dir: Path, data: str) -> tuple[str, ...]:
    """Names the data sets that a captioner learned from, its own first, then those of its origins.

    A published captioner has only the names of what it started from: those that ship are known.

    Args:
        run_dir: The run, or a published captioner.
        data: Its data set.
    """
    seen, ships = read_seen(run_dir), published.names()
    sources = seen.sources if seen else ()
    shipped = [published.SHIPPED / source.name for source in sources if source.name in ships]
    names = [data]
    for path in (*lineage(run_dir)[1:], *shipped):
        with contextlib.suppress(ValueError):  # it is no run any more
            names.append(read_run_config(path).data.name)
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Teachers:
    """Teachers of a captioner: `boxes`, `captioners` (distillation), `reward`.

    Attributes:
        own: Its own, the first ones first.
        inherited: Those of the captioners that it learned from.
    """

    own: tuple[str, ...]
    inherited: tuple[str, ...]


def teachers_of(run_dir: Path) -> Teachers:
    """Finds the teachers of a run and of those that it started from (`--init-from`).

    A published captioner records them. Runs that have been removed are not known.

    Args:
        run_dir: The run, or a published captioner.

    Raises:
        RunError: A published captioner names a teacher that this version does not know.
    """
    own, inherited = [], []
    for path in filter(Path.is_dir, reversed(lineage(run_dir))):
        if published.is_published(path):
            recorded = published.taught_by(path)
            own += recorded["own"]
            inherited += recorded["inherited"]
            for name in (*recorded["own"], *recorded["inherited"]):
                if name not in (BOXES, CAPTIONERS, REWARD):
                    raise RunError(
                        f"{path} was taught by {name!r}, unknown to this version: update sat_tf."
                    )
            continue
        trained = read_run_config(path)
        if trained.attention.supervision_weight:
            own.append(BOXES)
        if trained.fit.distillation_weight:
            own.append(CAPTIONERS)
            inherited += recorded_teachers(RunFolder(path))
        if trained.reward.metric != "none":
            own.append(REWARD)
    return Teachers(tuple(dict.fromkeys(own)), tuple(dict.fromkeys(inherited)))
