"""The runs that a run started from."""

from __future__ import annotations

from pathlib import Path

from sat_tf import published
from training.tasks.registry import read_config


def lineage(run_dir: Path) -> list[Path]:
    """Returns a run and those it started from (`--init-from`), the first one last.

    A run that has been removed since is named, and what it started from is not known.
    """
    found = [published.locate(run_dir).resolve()]
    origin = read_config(found[0]).init_from
    while origin is not None:
        try:
            path = published.locate(origin).resolve()
            origin = None if path in found else read_config(path).init_from
        except ValueError:
            path, origin = Path(origin).resolve(), None
        if path not in found:
            found.append(path)
    return found
