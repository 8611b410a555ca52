"""The account of a data folder: every text, list and image is used, or left out and said so."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from sat_tf.files import as_utf8
from training.data.sources.caption_files import may_hold_captions

_NAMED = 4  # files of one kind; of more, the first

RESULTS = (
    ("config.json", "vocabulary.json"),
    ("report.json", "report.md"),
    ("inspect.json", "index.html"),
)
"""Files of runs, evaluations and inspections: their folders hold no captions to learn from."""


def has_results(folder: Path) -> bool:
    """Returns whether a folder is that of a run, an evaluation or an inspection."""
    return any(all((folder / name).is_file() for name in names) for names in RESULTS)


def unread_files(
    data_dir: Path,
    used: Collection[Path] = (),
    reasons: Mapping[Path, str] = MappingProxyType({}),
    kinds: tuple[str, ...] = ("",),
) -> Iterator[str]:
    """Yields sentences on the files that may hold captions or lists, and are not read.

    Args:
        data_dir: The folder.
        used: Files that are read.
        reasons: File -> why it is not used, if that is known.
        kinds: Ends of the names of files that count.
    """
    known = set(map(os.path.abspath, used))
    because = {os.path.abspath(file): reason for file, reason in reasons.items()}
    unread: dict[str, dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    root = os.path.abspath(data_dir)
    for folder, folders, files in os.walk(root):
        folders[:] = [
            name for name in folders if name[0] != "." and not has_results(Path(folder, name))
        ]
        for name in files:
            if not may_hold_captions(name) or not name.lower().endswith(kinds):
                continue
            if (path := os.path.join(folder, name)) in known:
                continue
            inner = os.path.relpath(path, root)
            kind = (os.path.dirname(inner), os.path.splitext(name)[1].lower())
            unread[because.get(path, "")][kind].append(inner)
    for reason, of_kind in sorted(unread.items()):
        named = ", ".join(_listed(sorted(files)) for _, files in sorted(of_kind.items()))
        yield as_utf8(f"Not read{reason and f', as {reason}'}: {named}.")


def _listed(files: Sequence[str]) -> str:
    if len(files) <= _NAMED:
        return ", ".join(files)
    suffix = os.path.splitext(files[0])[1]
    return f"{len(files)} files *{suffix.lower()} such as {files[0]}"


def unread_images(names: Sequence[str]) -> Iterator[str]:
    """Yields a sentence on the images that no caption file names."""
    if names:
        count = "1 image of the folder is" if len(names) == 1 else f"{len(names)} images are"
        yield f"{count} in no caption file, such as {names[0]}."
