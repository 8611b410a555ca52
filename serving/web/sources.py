"""Models of the page without a server: runs, published models, and exports for LiteRT."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sat_tf.inference import published
from sat_tf.inference.litert_captioner import is_export, newest, read_settings
from sat_tf.inference.run_folder import RunFolder, read_object
from sat_tf.util.errors import RunError, invalid_value

_MOST_RUNS = 3
_KINDS = ("soft", "hard", "none")


def captioner_in(folder: Path) -> Path:
    """Returns the folder of a captioner: a run's, a published one's, or an export's for LiteRT.

    Raises:
        ValueError: There is none, or an export is damaged.
    """
    found, run = newest(folder), RunFolder(folder)
    if is_export(found):
        read_settings(found)
        return found
    files = (run.vocabulary, run.config, run.best_weights)
    if not (published.is_published(folder) or all(file.exists() for file in files)):
        expected = (
            "folders of trained captioners, or that `python -m serving.export --format litert`"
            " wrote; others are shown by a model server and `--server`"
        )
        raise invalid_value("run_dir", expected, str(folder))
    return folder


def named(folders: Sequence[Path]) -> dict[str, Path]:
    """Names models by their folders; repeated names get -2, -3, ..., but none that another has."""
    names = list(map(_name, folders))
    found: dict[str, Path] = {}
    for first, folder in zip(names, folders, strict=True):
        name, number = first, 1
        while name in found or (number > 1 and name in names):
            number += 1
            name = f"{first}-{number}"
        found[name] = folder
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
    """The last part of a path; of a version, or of a run's `export` or `litert`, what it is of."""
    path = folder.resolve()
    path = path.parent if path.name.isdecimal() and is_export(path) else path
    return path.parent.name if path.name in ("export", "litert") else path.name


def _values(folder: Path) -> dict:
    """Reads a configuration; a damaged one is reported where it is loaded."""
    try:
        return read_object(RunFolder(folder).config)
    except RunError:
        return {}
