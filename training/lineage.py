"""The runs that a run started from."""

from __future__ import annotations

from pathlib import Path

from sat_tf import published
from training.tasks.registry import read_config


def lineage(run_dir: Path) -> list[Path]:
    """Returns a run and those it started from (`--init-from`), the first one last.

    A run that has been removed since is named, and what it started from is not known. Nor is it
    for a published captioner, which keeps the last part of a path only: here, another run or
    captioner may have that name.
    """
    found = [published.locate(run_dir).resolve()]
    origin = _origin(found[0])
    while origin is not None:
        try:
            path = published.locate(origin).resolve()
            origin = None if path in found else _origin(path)
        except ValueError:
            path, origin = Path(origin).resolve(), None
        if path not in found:
            found.append(path)
    return found


def _origin(path: Path) -> str | None:
    return None if published.is_published(path) else read_config(path).init_from
