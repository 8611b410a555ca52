"""The runs that a run started from."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from sat_tf import published, runs
from training.tasks.registry import read_config


def lineage(run_dir: Path) -> list[Path]:
    """Returns a run and all that it started from: by `--init-from`, or as parts of an average.

    In the order of a depth-first search. A run that has been removed since is named, and what it
    started from is not known. Nor is it for a published captioner, which keeps the last part of a
    path only: here, another run or captioner may have that name.
    """
    found: list[Path] = []
    _follow(published.locate(run_dir).resolve(), found)
    return found


def _follow(path: Path, found: list[Path]) -> None:
    if path in found:
        return
    found.append(path)
    for origin in _origins(path):
        with suppress(ValueError):  # it is no run any more
            _follow(_find(origin, path), found)


def _origins(path: Path) -> list[str]:
    """Names what a run started from, as it was called then."""
    if published.is_published(path):
        return []
    if averaged := runs.read_average(path):
        return list(averaged)
    origin = read_config(path).init_from
    return [] if origin is None else [origin]


def _find(origin: str, run: Path) -> Path:
    """Returns the folder of an origin; it may have been named from any folder above the run."""
    for folder in run.parents:
        if (folder / origin).is_dir():
            return (folder / origin).resolve()
    try:
        return published.locate(origin).resolve()
    except ValueError:
        return Path(origin).resolve()
