"""The state of a job in its output folder: the images in chunks, and which chunks are done.

Everything in the folder is written by Spark, whose committer marks what is whole by `_SUCCESS`:

    OUT/_plan/                     the images of each chunk, and the settings of the job
    OUT/chunk=00000/output=.../    the rows of a chunk, replaced as a whole until it is done
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sat_tf.spark import root_cause
from serving.bulk.inputs import Inputs, literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLAN = "_plan"
_PLAN_SCHEMA = "job string, tables boolean, chunk int, position int, path string, images long"
_LOCK = "_lock"
_LOCK_SECONDS = 60.0  # a driver that was killed leaves its JVM behind for a moment


@dataclass(frozen=True)
class Job:
    """Settings that every row of one output shares.

    Attributes:
        inputs: The patterns of the command line, local ones absolute.
        version: Version of the export; without one, the captioner's name.
        fingerprint: SHA-256 of the export, or the name of the captioner's graphs in the cache.
        maps, format, batch_size, chunk_size: As on the command line.
    """

    inputs: tuple[str, ...]
    version: str
    fingerprint: str
    maps: bool
    format: str
    batch_size: int
    chunk_size: int


@dataclass(frozen=True)
class Chunk:
    """Images that are captioned and committed together.

    Attributes:
        number: Number of the chunk.
        paths: Files of images, or the file of a table.
        images: Number of images.
    """

    number: int
    paths: list[str]
    images: int


@dataclass(frozen=True)
class Plan:
    """The chunks of a job; `tables` says that their paths are files of tables."""

    chunks: list[Chunk]
    tables: bool


class Output:
    """The output folder of a job, on any of the engine's file systems.

    Args:
        spark: The session.
        path: Local path or URI.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self.path = path if "://" in path else os.path.abspath(path)
        hadoop = spark._jvm.org.apache.hadoop.fs
        self._path_of = hadoop.Path
        with self._errors("opened"):
            self._files = hadoop.Path(self.path).getFileSystem(spark._jsc.hadoopConfiguration())

    def chunk(self, number: int) -> str:
        """Folder of a chunk."""
        return f"{self.path}/chunk={number:05d}"

    def is_done(self, chunk: Chunk) -> bool:
        """Returns whether a chunk is committed.

        Raises:
            OSError: The folder cannot be read.
        """
        return self._exists(f"{self.chunk(chunk.number)}/_SUCCESS")

    def plan(self) -> tuple[Job, Plan] | None:
        """Reads the job that was begun here; None in a new or empty folder.

        Raises:
            ValueError: The folder holds something else.
            OSError: It cannot be read.
        """
        if not self._exists(f"{self.path}/{_PLAN}/_SUCCESS"):
            with self._errors("read"):
                place = self._path_of(self.path)
                found = self._files.listStatus(place) if self._files.exists(place) else ()
            names = {entry.getPath().getName() for entry in found}
            if others := names - {_PLAN, _LOCK}:
                raise ValueError(
                    f"The output {self.path} is not empty and holds no bulk captions (it has "
                    f"{min(others)}). Choose another folder with `--output`."
                )
            return None
        folder = literal(f"{self.path}/{_PLAN}")
        with self._errors("read"):
            rows = self._spark.read.schema(_PLAN_SCHEMA).parquet(folder).collect()
        rows.sort(key=lambda row: (row["chunk"], row["position"]))
        return read_job(rows[0]["job"]), _to_plan(rows)

    def begin(self, job: Job, inputs: Inputs) -> Plan:
        """Divides the images into chunks and commits the plan."""
        text, size = json.dumps(asdict(job)), 1 if inputs.tables else job.chunk_size
        rows = [
            (text, inputs.tables, position // size, position, path, images)
            for position, (path, images) in enumerate(zip(inputs.paths, inputs.images, strict=True))
        ]
        table = self._spark.createDataFrame(rows, _PLAN_SCHEMA)
        with self._errors("written"):
            table.coalesce(1).write.mode("overwrite").parquet(f"{self.path}/{_PLAN}")
        return _to_plan(rows)

    @contextlib.contextmanager
    def exclusively(self) -> Iterator[None]:
        """Keeps other jobs out of a local folder, waiting for one that is just ending.

        The lock is the JVM's, which commits, and may outlive a killed driver by a moment.

        Raises:
            OSError: Another job writes to the folder.
        """
        if "://" in self.path and not self.path.startswith("file:"):
            yield
            return
        folder = Path(self.path.removeprefix("file://"))
        folder.mkdir(parents=True, exist_ok=True)
        with self._errors("written"):
            file = self._spark._jvm.java.io.RandomAccessFile(str(folder / _LOCK), "rw")
        end = time.monotonic() + _LOCK_SECONDS
        try:
            while file.getChannel().tryLock() is None:
                if time.monotonic() > end:
                    raise OSError(f"{folder} is in use: another job writes to it.")
                time.sleep(1.0)
            yield
        finally:
            file.close()

    @contextlib.contextmanager
    def _errors(self, done: str) -> Iterator[None]:
        """Raises what Spark or Java meets as an `OSError` that names the output."""
        try:
            yield
        except Exception as error:  # py4j's and Spark's own
            raise OSError(
                f"The output {self.path} cannot be {done}: {root_cause(error)}"
            ) from error

    def _exists(self, path: str) -> bool:
        with self._errors("read"):
            return self._files.exists(self._path_of(path))


def _to_plan(rows: Sequence[tuple]) -> Plan:
    """Groups rows of `_PLAN_SCHEMA`, which are in order, by their chunk."""
    chunks = []
    for number, group in itertools.groupby(rows, key=lambda row: row[2]):
        *_, paths, images = zip(*group, strict=True)
        chunks.append(Chunk(number, list(paths), sum(images)))
    return Plan(chunks, tables=rows[0][1])


def read_job(text: str) -> Job:
    """Returns the settings that a plan holds as JSON."""
    values = json.loads(text)
    return Job(**values | {"inputs": tuple(values["inputs"])})


def is_begun(output: str) -> bool:
    """Returns whether an output may hold a job; only Spark knows of one that is not local."""
    return "://" in output or (Path(output) / _PLAN).exists()


def check_same(begun: Job, job: Job, output: str) -> None:
    """Checks that a job continues the one that was begun in its output.

    Raises:
        ValueError: They differ; the message names the first setting that does.
    """
    for name, value in asdict(job).items():
        before = getattr(begun, name)
        if before != value:
            shown = "another captioner" if name == "fingerprint" else f"{before!r}, not {value!r},"
            raise ValueError(
                f"The output {output} was begun with {shown} as its {name}: choose another folder "
                "with `--output`, or start the command that began it."
            )


def fingerprint(files: Iterable[Path]) -> str:
    """SHA-256 (hexadecimal) of a captioner's files."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
