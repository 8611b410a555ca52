"""The runs that a run started from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sat_tf import published, runs
from sat_tf.run_folder import RunFolder, read_object
from training.run_state.ownership import recorded_origins


def lineage(run_dir: Path) -> list[Path]:
    """Returns a run and all that it started from: by `--init-from`, or as parts of an average.

    In the order of a depth-first search. A run that has been removed since is named, and what it
    started from is not known. Nor is it for a published captioner, which keeps the last part of a
    path only: here, another run or captioner may have that name.
    """
    found: list[Path] = []
    path = published.locate(run_dir).resolve()
    _follow(path, _origins(path), found)
    return found


def _follow(path: Path, origins: Sequence[str], found: list[Path]) -> None:
    if path in found:
        return
    found.append(path)
    for folder in [_find(origin, path) for origin in origins]:
        try:
            earlier = _origins(folder)
        except ValueError:  # it is no run any more
            earlier = ()
        _follow(folder, earlier, found)


def _origins(path: Path) -> list[str]:
    """Names what a run started from, as it was called then."""
    if published.is_published(path):
        return []
    if averaged := runs.read_average(path):
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
