"""The files of a data folder by kind, and their account: used, or left out and said so."""

from __future__ import annotations

import os
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from sat_tf.util.files import as_utf8

_NAMED = 4  # files of one kind; of more, the first

RESULTS = (
    ("config.json", "vocabulary.json"),
    ("report.json", "report.md"),
    ("inspect.json", "index.html"),
)
"""Files of runs, evaluations and inspections: their folders hold no captions to learn from."""


READERS = {
    ".csv": "table",
    ".jsonl": "lines",
    ".json": "object",
    **dict.fromkeys((".token", ".token.txt"), "tokens"),
    ".parquet": "parquet",
    ".tar": "tar",
    **dict.fromkeys((".jsonlines", ".ndjson", ".manifest"), "lines"),
    ".xml": "cvat",
    **dict.fromkeys((".tsv", ".txt"), "table"),
}
"""Kind of each file, by the end of its name; of two ends that fit, the first."""
TEXTS = (".tsv", ".txt", ".xml")
"""Folders hold such files for other ends too: taken if there is nothing else and they parse."""
SUFFIXES = tuple(suffix for suffix in READERS if suffix not in TEXTS)
"""Names of files that are taken for caption files without being named end in one of these."""
PAIRED = (".caption", ".txt", ".xmp", ".json")
"""Suffixes of a file with an image's captions, named like the image, in order of preference."""

_TO_CSV = "is not read: write its captions to a CSV image,caption, and its images to files"
_TO_TABLE = "is not read: export its table as CSV or JSON"
_TO_PARQUET = 'save the data set of Hugging Face with `.to_parquet("train.parquet")`'
_TO_TEXT = "is a spreadsheet: save it as CSV (UTF-8)"
NOT_READ = {
    **dict.fromkeys((".xlsx", ".xls", ".ods", ".numbers"), _TO_TEXT),
    **dict.fromkeys((".zip", ".gz", ".tgz", ".7z", ".rar"), "is packed: unpack it in the folder"),
    ".arrow": f"is not read: {_TO_PARQUET}",
    **dict.fromkeys((".tfrecord", ".tfrecords", ".pkl", ".h5", ".hdf5", ".mat", ".npz"), _TO_CSV),
    **dict.fromkeys((".mdb", ".lmdb", ".feather"), _TO_CSV),
    **dict.fromkeys((".db", ".sqlite", ".sqlite3", ".sql"), _TO_TABLE),
}
"""Kinds of files that may hold captions and are not read -> what to do."""
_HOLDING = (*READERS, *PAIRED, *NOT_READ, ".lst", ".npy")
_ABOUT = (".", "readme", "license", "licence", "requirements", "thumbs")


def may_hold_captions(name: str) -> bool:
    """Returns whether a file may hold captions, or lists of images, by its name."""
    small = name.lower()
    return small.endswith(_HOLDING) and not small.startswith(_ABOUT)


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


def inside_of(data_dir: Path, file: Path, quoted: bool = True) -> str:
    """A file's path as `--data.captions` names it, quoted for a shell."""
    inner = file.relative_to(data_dir) if file.is_relative_to(data_dir) else file.name
    return shlex.quote(str(inner)) if quoted else str(inner)
