"""Models of the page without a server: exports, or runs that are exported into the user's cache."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import filelock

from sat_tf import published
from sat_tf.errors import invalid_value
from sat_tf.files import NO_LOCKS, default_cache_dir, sha256_of, write_atomically
from sat_tf.run_folder import RunFolder
from serving.versions import has_version, remove_drafts

_ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (_ROOT / "sat_tf", _ROOT / "serving")
"""Folders of the code that exports a run."""
_MOST_RUNS = 3
_KINDS = ("soft", "hard", "none")
_MADE_FROM = "made_from.txt"  # in the folder of an export: the path of its run


@dataclass(frozen=True)
class Source:
    """A model to serve.

    Attributes:
        name: Its name on the page.
        export: Folder of its versions.
        run: The run to export there if that folder has no version.
    """

    name: str
    export: Path
    run: Path | None = None


def from_exports(folders: Sequence[Path]) -> list[Source]:
    """Returns the sources of exports, each named by its folder, see `name_apart`.

    Raises:
        ValueError: A folder holds no version.
    """
    for folder in folders:
        if not has_version(folder):
            expected = "folders that `python -m serving.export` wrote, with versions 1, 2, ..."
            raise invalid_value("export", expected, str(folder))
    return [Source(_name(folder), folder) for folder in folders]


def from_runs(runs: Sequence[Path]) -> list[Source]:
    """Returns the sources of runs and published models, exported into the user's cache.

    Each is named by its folder, see `name_apart`.

    Raises:
        ValueError: A folder is no finished run.
    """
    for run in runs:
        folder = RunFolder(run)
        files = (folder.vocabulary, folder.config, folder.best_weights)
        if not (published.is_published(run) or all(file.exists() for file in files)):
            raise invalid_value("run_dir", "folders of trained captioners", str(run))
    return [
        Source(name := _name(run), cache_folder() / f"{name}-{_fingerprint(run)}", run)
        for run in runs
    ]


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
        kind = _values(run).get("attention", {}).get("kind", "")
        return (_KINDS.index(kind) if kind in _KINDS else len(_KINDS), run.name)

    return sorted(shipped[:_MOST_RUNS], key=order)


def notes_of(runs: Sequence[Path]) -> tuple[str, ...]:
    """Returns sentences about the limits of runs."""
    drawn = [run.name for run in runs if _values(run).get("data", {}).get("name") == "scenes"]
    if not drawn:
        return ()
    return (
        f"{', '.join(drawn)}: trained on drawn scenes of coloured shapes, and knows nothing else. "
        "Captions of photographs will be about shapes.",
    )


def language_of(runs: Sequence[Path]) -> str:
    """Returns the language of the first run's captions; `en` if none says."""
    languages = [_values(run).get("data", {}).get("language") for run in runs]
    return next(filter(None, languages), "en")


def cache_folder() -> Path:
    """Returns the folder of the exports that the page makes."""
    return default_cache_dir() / "exports"


@contextlib.contextmanager
def exporting_to(export: Path) -> Iterator[None]:
    """Keeps other pages from exporting a run to the cache, and removes what killed ones left.

    On a file system without locks nobody is kept out, and nothing is removed: it may be in use.
    """
    export.mkdir(parents=True, exist_ok=True)
    # The file stays: whoever waits for it would otherwise hold a lock that nobody else sees.
    lock = filelock.FileLock(export / ".lock", fallback_to_soft=False)
    try:
        lock.acquire()
        remove_drafts(export)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    try:
        yield
    finally:
        lock.release()


def remove_earlier(export: Path, run: Path) -> None:
    """Records which run an export in the cache was made of, and removes its earlier exports.

    A page that serves an earlier one has loaded it, and exports the run again if it restarts its
    models. Exports of other runs of the same name stay.
    """
    path = os.fsencode(run.resolve())
    write_atomically(export / _MADE_FROM, path)
    name, _, _ = export.name.rpartition("-")
    for other in export.parent.glob(f"{glob.escape(name)}-*"):
        with contextlib.suppress(OSError):  # it has no note, or another page removes it
            if other != export and (other / _MADE_FROM).read_bytes() == path:
                # Under another name first, so that nobody finds half of it.
                gone = other.rename(other.with_name(f".{other.name}.{os.getpid()}"))
                shutil.rmtree(gone, ignore_errors=True)


def _name(folder: Path) -> str:
    """The last part of the path; where a run's `export` is named, the run's."""
    path = folder.resolve()
    return path.parent.name if path.name == "export" else path.name


def _values(run: Path) -> dict:
    return json.loads(RunFolder(run).config.read_text(encoding="utf-8"))


def _fingerprint(run: Path) -> str:
    """Changes with a run and with the code that exports it, so that no export outlives either.

    Copies of a run have the same fingerprint.
    """
    manifest, folder = published.manifest_of(run), RunFolder(run)
    files = [manifest] if manifest else [folder.config, folder.vocabulary, folder.best_weights]
    code = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
    parts = map(sha256_of, (*code, *files))
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:12]
