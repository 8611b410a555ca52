"""The images of a job: folders, globs, lists, and Parquet tables of paths or contents.

Python workers cannot use the file systems of the engine's JVM, so files are found and read by
Python: local ones, and through Arrow s3://, gs://, abfss:// and hdfs://. Spark itself reads tables,
and so reaches whatever it has a file system for.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from sat_tf.errors import invalid_value
from sat_tf.files import printable
from sat_tf.images import SUFFIXES

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
    pattern = absolute(pattern)
    if os.path.isfile(pattern):
        return [printable(pattern)]
    folders = [pattern] if os.path.isdir(pattern) else []
    matches = [] if folders else glob.glob(pattern, recursive=True)
    folders += [match for match in matches if os.path.isdir(match)] if "**" not in pattern else []
    found = [match for match in matches if os.path.isfile(match)]
    for folder in folders:
        for parent, _, names in os.walk(folder, onerror=_raise):
            found += [os.path.join(parent, name) for name in names if is_image(name)]
    return sorted(map(printable, found))  # escaped names are reported as unreadable


def _raise(error: OSError) -> None:
    raise error


def is_image(name: str) -> bool:
    """Says whether a file below a folder is one to caption, by its name."""
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
    if "://" not in path:
        size = os.stat(path).st_size
        _check_size(size)
        return Path(path).read_bytes()
    from pyarrow import fs

    system, place = fs.FileSystem.from_uri(path)
    _check_size(system.get_file_info(place).size or 0)
    with system.open_input_stream(place) as stream:
        return stream.read()


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise OSError(f"{size / 1e6:.0f} MB are more than {MAX_BYTES / 1e6:.0f} MB")


def _find_remote(pattern: str) -> list[str]:
    from pyarrow import fs

    scheme, _, place = pattern.partition("://")
    wild = _WILD.search(place)
    place = place.rstrip("/")
    base = place[: wild.start()].rpartition("/")[0] if wild else place
    system, root = fs.FileSystem.from_uri(f"{scheme}://{base}")
    entry = system.get_file_info(root)
    if entry.type == fs.FileType.File:
        return [pattern]
    files: Iterable = system.get_file_info(fs.FileSelector(root, recursive=True))
    found = [
        f"{scheme}://{base}{info.path.removeprefix(root)}"
        for info in files
        if info.type == fs.FileType.File
    ]
    wanted = f"{scheme}://{place}"
    return sorted(p for p in found if (_is_chosen(p, wanted) if wild else is_image(p)))


def _is_chosen(path: str, pattern: str) -> bool:
    """Says whether a file matches a glob, or is an image below a folder that does."""
    names, wanted = path.split("/"), pattern.split("/")
    if "**" not in pattern and len(names) > len(wanted) and is_image(path):
        names = names[: len(wanted)]
    return _matches(names, wanted)


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
