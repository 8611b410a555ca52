"""The images of a job: folders, globs, lists, and Parquet tables of paths or contents.

Python workers cannot use the file systems of the engine's JVM, so files are found and read by
Python: local ones, and through Arrow s3://, gs://, abfss:// and hdfs://. Spark itself reads tables,
and so reaches whatever it has a file system for.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from sat_tf.images import SUFFIXES
from sat_tf.util.errors import invalid_value
from sat_tf.util.files import as_utf8

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATH, CONTENT = "path", "content"
"""Columns of a table, as Spark's own source `binaryFile` calls them."""

MAX_BYTES = 256 * 2**20
"""Largest file that is read."""
_WILD = re.compile(r"[*?\[]")
_SPARKS_WILD = re.compile(r"[*?\[\]{}\\]")


@dataclass(frozen=True)
class Inputs:
    """The images to caption.

    Attributes:
        paths: Files of images in their order, each once; or files of tables with contents.
        images: Number of images in each of `paths`.
        tables: Whether the paths are those of tables.
    """

    paths: list[str]
    images: list[int]
    tables: bool = False


def find_inputs(spark: Callable[[], SparkSession], patterns: Sequence[str]) -> Inputs:
    """Finds the images of all patterns.

    Args:
        spark: Returns the session, if there are tables to read.
        patterns: Files, folders (with all below them), globs, lists (`*.txt`, a path per line) or
            tables (`*.parquet`: with a column `content` of image files, else one `path`).

    Raises:
        ValueError: A pattern matches no image, or tables of contents are mixed with other inputs.
        OSError: A folder, list or table cannot be read.
    """
    tables: dict[str, int] = {}
    paths: list[str] = []
    for pattern in patterns:
        if pattern.rstrip("/").endswith(".parquet"):
            found, contents = _read_table(spark(), pattern)
            tables |= contents
        else:
            found, contents = find_files(pattern), {}
        if not found and not contents:
            kinds = ", ".join(SUFFIXES)
            raise invalid_value("--input", f"images ({kinds})", f"{pattern}, which has none")
        paths += found
    if tables and paths:
        expected = "either tables with a column `content` or paths of images"
        raise invalid_value("--input", expected, "both")
    if tables:
        return Inputs(list(tables), list(tables.values()), tables=True)
    unique = list(dict.fromkeys(paths))
    return Inputs(unique, [1] * len(unique))


def find_files(pattern: str) -> list[str]:
    """Returns the images of a pattern as absolute paths or URIs, sorted unless it is a list."""
    if pattern.endswith(".txt"):
        text = read_file(absolute(pattern)).decode("utf-8-sig", "surrogateescape")
        # Not `splitlines` and `strip`, which also divide and cut names at other characters.
        lines = [line.strip(" \t\r") for line in text.split("\n")]
        return [absolute(line) for line in lines if line]
    if "://" in pattern:
        return _find_remote(pattern)
    path = absolute(pattern)
    path = os.path.join(path, "") if pattern.endswith("/") else path
    if os.path.isfile(path):
        return [as_utf8(path)]
    if os.path.isdir(path):
        base, wanted = path, ""
    elif _WILD.search(path):
        base, wanted = _split(path)
    else:
        return []
    return sorted(map(as_utf8, _find_local(base or "/", wanted)))  # escaped: told as unreadable


def _find_local(base: str, wanted: str) -> Iterator[str]:
    """Yields the files below a folder that a glob chooses; other folders are not opened.

    Links to folders are followed as far as the glob reaches, and not below.
    """
    prefix = os.path.join(base, "")
    for folder, below, names in os.walk(base, onerror=_raise, followlinks=True):
        place = os.path.join(folder, "").removeprefix(prefix)
        inside = _is_below(place, wanted)
        below[:] = [
            name
            for name in below
            if _leads_on(place + name, wanted)
            or (inside and not os.path.islink(os.path.join(folder, name)))
        ]
        for name in names:
            path = os.path.join(folder, name)
            # A broken link that has an image's name is told as unreadable.
            if _is_chosen(place + name, wanted) and (is_image(name) or os.path.isfile(path)):
                yield path


def _raise(error: OSError) -> None:
    raise error


def is_image(name: str) -> bool:
    """Returns whether a file below a folder is one to caption, by its name."""
    name = name.rpartition("/")[2]
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def absolute(path: str) -> str:
    """Returns a local path as an absolute one, and a URI as it is."""
    path = path.removeprefix("file://")
    return path if "://" in path else os.path.abspath(path)


def literal(path: str) -> str:
    """Escapes a path for Spark's readers, which would take it for a glob."""
    return _SPARKS_WILD.sub(r"\\\g<0>", path)


def read_file(path: str) -> bytes:
    """Reads a file of any of Arrow's file systems.

    Raises:
        OSError: It cannot be read, or is larger than `MAX_BYTES`.
    """
    if "://" in path:
        from pyarrow import fs

        system, place = fs.FileSystem.from_uri(path)
        size = system.get_file_info(place).size or 0
        opened = functools.partial(system.open_input_stream, place)
    else:
        size, opened = os.stat(path).st_size, functools.partial(open, path, "rb")
    if size > MAX_BYTES:
        raise OSError(f"{size / 1e6:.0f} MB are more than {MAX_BYTES / 1e6:.0f} MB")
    with opened() as stream:
        return stream.read()


def _find_remote(pattern: str) -> list[str]:
    from pyarrow import fs

    scheme, _, place = pattern.partition("://")
    base, wanted = _split(place)
    system, root = fs.FileSystem.from_uri(f"{scheme}://{base}")
    if system.get_file_info(root).type == fs.FileType.File:
        return [pattern] if base == place else []
    files: Iterable = system.get_file_info(fs.FileSelector(root, recursive=True))
    paths = (
        info.path.removeprefix(root).lstrip("/") for info in files if info.type == fs.FileType.File
    )
    return sorted(f"{scheme}://{base}/{path}" for path in paths if _is_chosen(path, wanted))


def _split(pattern: str) -> tuple[str, str]:
    """Divides a glob into the folder before its first wildcard and the rest."""
    folders = "/" if pattern.endswith("/") else ""
    pattern = pattern.rstrip("/")
    wild = _WILD.search(pattern)
    if not wild:
        return pattern, ""
    base, slash, _ = pattern[: wild.start()].rpartition("/")
    return base, pattern[len(base + slash) :] + folders


def _is_chosen(path: str, wanted: str) -> bool:
    """Returns whether a file matches a glob, or is an image below a folder that does.

    Both are relative to the same folder, which the empty glob matches.
    """
    if _matches(path.split("/"), wanted.split("/")):
        return True
    return is_image(path) and _is_below(path, wanted)


def _is_below(path: str, wanted: str) -> bool:
    """Returns whether a path is below a folder that a glob matches.

    A glob that ends in a slash matches folders only; one with `**` that does not, files only.
    """
    if "**" in wanted and not wanted.endswith("/"):
        return False
    parts, patterns = path.split("/"), os.path.join(wanted, "").split("/")
    return any(_matches([*parts[:count], ""], patterns) for count in range(len(parts)))


def _leads_on(folder: str, wanted: str) -> bool:
    """Returns whether a folder matches a glob, or is on the way to its matches."""
    names, patterns = folder.split("/"), wanted.split("/")
    return any(_matches(names, patterns[:count]) for count in range(1, len(patterns) + 1))


def _matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Compares the names of a path with those of a pattern, as `glob` does.

    `**` stands for any number of folders; no wildcard matches a slash, or the dot of a hidden name.
    """
    if not names or not patterns:
        return not names and not patterns
    (name, *below), (pattern, *rest) = names, patterns
    hidden = name.startswith(".") and not pattern.startswith(".")
    if pattern == "**":
        deeper = _matches(below, patterns) if below else not rest
        return _matches(names, rest) or (deeper and not hidden)
    return not hidden and fnmatch.fnmatchcase(name, pattern) and _matches(below, rest)


def _read_table(spark: SparkSession, pattern: str) -> tuple[list[str], dict[str, int]]:
    """Returns the paths that a table lists, or its files with the number of images in each."""
    from pyspark.errors import AnalysisException
    from pyspark.sql.functions import input_file_name

    source = absolute(pattern)
    source = literal(source) if os.path.exists(source) else source
    try:
        table = spark.read.parquet(source)
    except AnalysisException as error:
        raise invalid_value("--input", "a Parquet table", f"{pattern}: {error}") from error
    columns = dict(table.dtypes)
    if columns.get(PATH) != "string":
        expected = f"a table with a column `{PATH}` of strings, and a binary `{CONTENT}` if any"
        raise invalid_value("--input", expected, f"{pattern} with {columns}")
    if columns.get(CONTENT) == "binary":
        counts = table.groupBy(input_file_name().alias("file")).count().collect()
        # Spark reports paths URL-encoded and reads them decoded.
        return [], {unquote(row["file"]): row["count"] for row in sorted(counts)}
    return [absolute(row[0]) for row in table.select(PATH).collect() if row[0]], {}
