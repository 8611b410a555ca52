"""Folders of the runs that a run started from, as they were found when it started.

A name such as `flickr8k_soft` means the captioner that ships, or a folder, depending on where the
command was typed. The record tells which it was.
"""

from __future__ import annotations

from collections.abc import Iterable

from sat_tf import published
from sat_tf.errors import RunError
from sat_tf.files import write_json
from sat_tf.run_folder import RunFolder, read_object


def record_origins(folder: RunFolder, names: Iterable[str]) -> None:
    """Records where each name leads, when the weights have just been taken from there."""
    write_json(folder.origins, {name: str(published.locate(name).resolve()) for name in names})


def recorded_origins(folder: RunFolder) -> dict[str, str]:
    """Returns name -> folder; empty if nothing was recorded.

    Raises:
        RunError: The record is damaged.
    """
    if not folder.origins.exists():
        return {}
    found = read_object(folder.origins)
    if not all(isinstance(path, str) for path in found.values()):
        raise RunError(f"Cannot read {folder.origins}: expected texts, got {found!r}.")
    return found
