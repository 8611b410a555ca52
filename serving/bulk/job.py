"""A job: its captioner, and its state in the output folder, which is that of chunks of images.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sat_tf.inference.litert_captioner import SETTINGS, VOCABULARY, is_export, newest, read_settings
from sat_tf.inference.load import graphs_of
from sat_tf.spark import root_cause
from sat_tf.util.errors import invalid_value
from serving.bulk.inputs import Inputs, literal
from serving.versions import GRAPH_FILE, find_versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIGNATURE, NEEDED = "serving_default", ("captions", "scores", "valid")
"""Signature of a SavedModel that a job calls, and outputs that it must have."""

_INPUT = "image_bytes"
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


@dataclass(frozen=True)
class Shipped:
    """A captioner as the engine copies it to every machine.

    Attributes:
        version: Number of an export's version; without one, the captioner's name.
        fingerprint: SHA-256 of what its captions depend on, or the name of its graphs in the cache.
        files: Paths below one folder there -> files here.
    """

    version: str
    fingerprint: str
    files: Mapping[str, Path]


def find_captioner(run_dir: Path, export: Path | None, maps: bool) -> Shipped:
    """Returns the captioner of a job; graphs are made, with TensorFlow, if there are none yet.

    Args:
        run_dir: See `sat_tf.load`; only read without `export`.
        export: Folder of a SavedModel, or of its versions.
        maps: Whether attention is asked for.

    Raises:
        ValueError: There is none; or it captions no image files, or has no attention.
    """
    if export is not None and not is_export(newest(export)):
        version = find_version(export)
        check_export(version, maps)
        variables = sorted((version / "variables").glob("*"))
        files = {str(path.relative_to(version)): path for path in version.rglob("*")}
        return Shipped(version.name, fingerprint([version / GRAPH_FILE, *variables]), files)
    found = graphs_of(run_dir if export is None else export)
    settings = read_settings(found.folder)
    if maps and settings.grid is None:
        raise invalid_value("--maps", "a captioner with attention", str(run_dir))
    paths = [*settings.files(found.folder).values()]
    paths += [found.folder / name for name in (SETTINGS, VOCABULARY)]
    files = {path.name: path for path in paths} | {**found.limits}
    return Shipped(found.name, found.fingerprint or fingerprint(paths), files)


def find_version(export: Path) -> Path:
    """Returns the folder of a version: the one given, or the newest in it.

    Raises:
        ValueError: There is none.
    """
    if (export / GRAPH_FILE).is_file():
        return export.resolve()
    found = find_versions(export) if export.is_dir() else {}
    if not found:
        inner = export / "export"
        expected = f"the folder of an export{f', such as {inner}' if inner.is_dir() else ''}"
        raise invalid_value("--export", expected, str(export))
    return found[max(found)].resolve()


def check_export(version: Path, maps: bool) -> None:
    """Checks that a version of an export captions image files, without loading it.

    Raises:
        ValueError: It has no `serving_default` from `image_bytes` to captions, or no attention.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    try:
        content = (version / GRAPH_FILE).read_bytes()
        model = saved_model_pb2.SavedModel.FromString(content)
    except DecodeError as error:
        raise invalid_value("--export", "a SavedModel", str(version)) from error
    if not model.meta_graphs:  # no byte at all is a message too
        raise invalid_value("--export", "a SavedModel", f"{version}, whose {GRAPH_FILE} is empty")
    signature = model.meta_graphs[0].signature_def[SIGNATURE]
    if list(signature.inputs) != [_INPUT] or not set(NEEDED) <= set(signature.outputs):
        inputs = ", ".join(signature.inputs) or "none"
        expected = f"an export whose `{SIGNATURE}` makes captions of `{_INPUT}`"
        raise invalid_value("--export", expected, f"{version} with the inputs {inputs}")
    if maps and "attention" not in signature.outputs:
        raise invalid_value("--maps", "an export with attention", str(version))


def fingerprint(files: Iterable[Path]) -> str:
    """SHA-256 (hexadecimal) of a captioner's files."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
