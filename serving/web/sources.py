"""Models of the page without a server: runs, published models, and exports for LiteRT."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sat_tf import published
from sat_tf.errors import invalid_value
from sat_tf.lite.captioner import newest, read_settings
from sat_tf.run_folder import RunFolder

_MOST_RUNS = 3
_KINDS = ("soft", "hard", "none")


@dataclass(frozen=True)
class Source:
    """A model, and its name on the page."""

    name: str
    folder: Path


def from_exports(folders: Sequence[Path]) -> list[Source]:
    """Returns the sources of exports for LiteRT, each named by its folder, see `name_apart`.

    Args:
        folders: Exports, or folders with versions of one: the newest is taken.

    Raises:
        ValueError: A folder holds no export for LiteRT.
    """
    found = []
    for folder in folders:
        export = newest(folder)
        try:
            read_settings(export)
        except ValueError as error:
            expected = (
                "folders that `python -m serving.export --format litert` wrote; others are shown by"
                " a model server and `--server`"
            )
            raise invalid_value("export", expected, f"{folder}: {error}") from error
        found.append(Source(_name(folder), export))
    return found


def from_runs(runs: Sequence[Path]) -> list[Source]:
    """Returns the sources of runs and published models, each named by its folder.

    Raises:
        ValueError: A folder is not a finished run.
    """
    for run in runs:
        folder = RunFolder(run)
        files = (folder.vocabulary, folder.config, folder.best_weights)
        if not (published.is_published(run) or all(file.exists() for file in files)):
            raise invalid_value("run_dir", "folders of trained captioners", str(run))
    return [Source(_name(run), run) for run in runs]


def name_apart(sources: Sequence[Source]) -> list[Source]:
    """Appends -2, -3, ... to repeated names, skipping names that another source has."""
    given, taken, found = {source.name for source in sources}, set(), []
    for source in sources:
        name, number = source.name, 1
        while name in taken or (number > 1 and name in given):
            number += 1
            name = f"{source.name}-{number}"
        taken.add(name)
        found.append(replace(source, name=name))
    return found


def shipped_captioners() -> list[Path]:
    """Returns the captioners that ship, at most three: soft, hard, without attention."""
    shipped = [published.locate(name) for name in published.names()]

    def order(run: Path) -> tuple[int, str]:
        kind = kind_of(run)
        return (_KINDS.index(kind) if kind in _KINDS else len(_KINDS), run.name)

    return sorted(shipped[:_MOST_RUNS], key=order)


def kind_of(run: Path) -> str:
    """Returns a captioner's kind of attention: `soft`, `hard` or `none`; empty if not known."""
    return _values(run).get("attention", {}).get("kind", "")


def notes_of(runs: Sequence[Path]) -> tuple[str, ...]:
    """Returns sentences about the limits of runs."""
    drawn = [run.name for run in runs if _values(run).get("data", {}).get("name") == "scenes"]
    if not drawn:
        return ()
    return (
        f"{', '.join(drawn)}: trained on drawn scenes of coloured shapes, and knows nothing else. "
        "Captions of photographs will be about shapes.",
    )


def _name(folder: Path) -> str:
    """The last part of the path; where a run's `export` or `litert` is named, the run's."""
    path = folder.resolve()
    return path.parent.name if path.name in ("export", "litert") else path.name


def _values(folder: Path) -> dict:
    return _read(RunFolder(folder).config)


def _read(path: Path) -> dict:
    """Reads a file's values; a damaged file is told where it is loaded."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
