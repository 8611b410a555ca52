"""Files: atomic writes, after which a file is the old or the new one; JSON, hashes, the cache."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""Errors of a file system without locks."""


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a whole file or leaves the old one: a temporary file next to it, then a rename.

    All users may read the file. A symbolic link is replaced; the file it names is unchanged. A
    killed process may leave the temporary file, `.sat_tf.*.tmp`.

    Raises:
        OSError: It cannot be written; it names the file, and no temporary file stays behind.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    temporary = None
    try:
        # With the file's own name in it, a long one would be too long.
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".sat_tf.", suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)  # mkstemp's 0600 would hide the file from a web server
        sync(Path(temporary))
        os.replace(temporary, path)
    except BaseException as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:
            error.filename = str(path)
        raise


def write_json(path: Path, value: Any) -> None:
    """Writes a value as JSON that people can read, as `write_atomically` does."""
    write_atomically(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def json_object(content: str | bytes) -> dict[str, Any]:
    """Parses a JSON object of any origin.

    Raises:
        ValueError: It is none, or lists in it are nested too deeply.
    """
    try:
        values = json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(values, dict):
        raise ValueError(f"expected a JSON object, got {str(values)[:80]}")
    return values


def read_content(path: Path, most: int = 2**28) -> bytes:
    """Reads a file of at most so many bytes.

    Raises:
        ValueError: It is larger.
        OSError: It cannot be read, or is a pipe or device.
    """
    if path.exists() and not path.is_file():
        raise IsADirectoryError(errno.EISDIR, "It is not a file", str(path))
    if path.stat().st_size > most:
        raise ValueError(f"it has more than {most:,} bytes")
    return path.read_bytes()


def write_all(contents: Mapping[Path, Any]) -> None:
    """Writes files one after the other: texts and bytes as they are, other values as JSON."""
    for path, content in contents.items():
        if isinstance(content, str | bytes):
            write_atomically(path, content)
        else:
            write_json(path, content)


def finite(value: Any) -> Any:
    """Replaces numbers that are not finite, which JSON does not have, by None, at any depth."""
    if isinstance(value, Mapping):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def default_cache_dir() -> Path:
    """Returns `$SAT_TF_CACHE`, else `$XDG_CACHE_HOME/sat_tf`, else `~/.cache/sat_tf`.

    Feature stores of training and exports of the page are kept there; it may be deleted.
    """
    if own := os.environ.get("SAT_TF_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sat_tf"


@contextlib.contextmanager
def literal_path(path: Path) -> Iterator[Path]:
    """Yields a path of a file or folder that TensorFlow, which reads patterns, takes as it is."""
    if not set("[]\\*?") & set(str(path)):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder) / "link"
        link.symlink_to(path.resolve())
        yield link


def sha256_of(path: Path) -> str:
    """Computes the SHA-256 of a file's content, hexadecimal, without holding it in memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def as_utf8(name: str) -> str:
    """Escapes the bytes of a file name that are not UTF-8, in a form that JSON reads back."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def sync(path: Path) -> None:
    """Waits until the content of a file, or the names in a folder, are on the disk.

    Needed before a rename: otherwise a power cut may leave the new name without content.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
