"""Caption many images on Spark: `python -m serving.bulk`, or through `spark-submit`."""

from __future__ import annotations

import contextlib
import functools
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from sat_tf.spark import check_spark, open_session, root_cause, watched
from sat_tf.util.commands import exit_status, loading, parse_flags
from sat_tf.util.fields import PositiveInt, check_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from serving.bulk.job import Chunk, Job, Output, Plan, Shipped

_FORMATS = {"jsonl": "json", "parquet": "parquet"}


@dataclass(frozen=True)
class Arguments:
    """Caption many images on Spark, each exactly once."""

    input: tuple[str, ...]
    """Folders, globs, lists (*.txt, a path per line) or tables (*.parquet, column path, and binary
    content if any)."""
    output: str
    """Folder of the captions: new, or of the same job, which is then resumed."""
    run_dir: Path = Path("flickr8k_soft")
    """Run, export for LiteRT, or folder or name of a published captioner, whose graphs caption
    without TensorFlow; by default a captioner that ships."""
    export: Path | None = None
    """Folder of a SavedModel to caption with instead, and with TensorFlow: of one version, or of
    versions, of which the newest is taken."""
    format: Literal["jsonl", "parquet"] = "jsonl"
    """Format of the part files."""
    batch_size: PositiveInt = 32
    """Images per call of a SavedModel; a task takes up to four times as many."""
    chunk_size: PositiveInt = 4096
    """Images per commit; a job that was killed resumes after its last one."""
    maps: bool = False
    """Write the attention of each word, float16."""
    master: str | None = None
    """Spark's master, such as local[2] or spark://HOST:7077; that of spark-submit by default, or
    all cores of this machine."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns 0 if every image was captioned, 1 if some were not, or 2."""
    arguments = parse_flags(Arguments, argv, "serving.bulk", config=(tyro.conf.FlagCreatePairsOff,))
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> int:
    """Captions the images that are left; returns the exit status."""
    check_fields(arguments)
    with loading():
        from serving.bulk.inputs import absolute, find_inputs
        from serving.bulk.job import Job, Output, check_same, find_captioner, is_begun

    captioner = find_captioner(arguments.run_dir, arguments.export, arguments.maps)
    given = {n: getattr(arguments, n) for n in ("maps", "format", "batch_size", "chunk_size")}
    # Absolute: from another folder, the same words would name other images.
    patterns = tuple(map(absolute, arguments.input))
    job = Job(patterns, captioner.version, captioner.fingerprint, **given)
    check_spark()
    with contextlib.ExitStack() as stack:

        @functools.cache
        def spark() -> SparkSession:
            session = open_session("sat_tf bulk captioning", arguments.master)
            stack.callback(session.stop)
            return session

        # Spark takes seconds to start: a wrong pattern is answered before.
        inputs = None if is_begun(arguments.output) else find_inputs(spark, arguments.input)
        output = Output(spark(), arguments.output)
        stack.enter_context(output.exclusively())
        begun = output.plan()
        if begun is None:
            plan = output.begin(job, inputs or find_inputs(spark, arguments.input))
        else:
            check_same(begun[0], job, output.path)
            job, plan = begun
        # Until the end: any task, of the report too, may be the first of its worker.
        stack.enter_context(shipped(spark(), captioner))
        caption_chunks(spark(), output, job, plan)
        return report(spark(), output, job, plan)


@contextlib.contextmanager
def shipped(spark: SparkSession, captioner: Shipped) -> Iterator[None]:
    """Lets the engine copy a captioner to every machine, as an archive.

    The archive is in the session's own folder, which its JVM removes however this process ends.
    """
    from serving.bulk.worker import ARCHIVE

    with tempfile.TemporaryDirectory(dir=spark.sparkContext._temp_dir) as folder:
        archive = Path(folder) / f"{ARCHIVE}.zip"
        # Without compression, which takes seconds, and with files of any age.
        with zipfile.ZipFile(archive, "w", strict_timestamps=False) as file:
            for name, path in captioner.files.items():
                file.write(path, name)
        spark.sparkContext.addArchive(f"{archive}#{ARCHIVE}")
        yield


def caption_chunks(spark: SparkSession, output: Output, job: Job, plan: Plan) -> None:
    """Captions and commits the chunks that are not done, one job of the engine each.

    Raises:
        OSError: The engine gave up; what is committed stays.
    """
    from sat_tf.util.commands import progress_bar

    left = [chunk for chunk in plan.chunks if not output.is_done(chunk)]
    total, todo = (sum(chunk.images for chunk in chunks) for chunks in (plan.chunks, left))
    if todo < total:
        print(f"Resuming: {total - todo} of {total} images are done.")
    with progress_bar(total, "Captions", "images", done=total - todo) as bar:
        for chunk in left:
            try:
                rows = caption_rows(spark, job, plan, chunk)
                writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "static")
                writer = writer.partitionBy("output").format(_FORMATS[job.format])
                with watched(spark, bar, chunk.images):
                    writer.save(output.chunk(chunk.number))
            except Exception as error:  # py4j's and Spark's own
                raise OSError(
                    f"Spark gave up on chunk {chunk.number}: {root_cause(error)}. What is done is "
                    "kept: start the same command again to resume."
                ) from error


def caption_rows(spark: SparkSession, job: Job, plan: Plan, chunk: Chunk) -> DataFrame:
    """Returns the rows of a chunk, to be computed by the workers."""
    from serving.bulk import inputs, worker

    cores = int(spark.conf.get("spark.task.cpus", "1"))
    if plan.tables:
        table = spark.read.parquet(*map(inputs.literal, chunk.paths))
        source = table.select(inputs.PATH, inputs.CONTENT).rdd
        caption = functools.partial(worker.caption_contents, job=job, cores=cores)
    else:
        # Slices of a list in a fixed order: a task that is tried again has the same batches.
        slices = worker.count_slices(len(chunk.paths), job.batch_size)
        source = spark.sparkContext.parallelize(range(slices), slices)
        caption = functools.partial(
            worker.caption_slices, paths=chunk.paths, slices=slices, job=job, cores=cores
        )
    schema = worker.schema(job)
    return spark.createDataFrame(source.mapPartitions(caption), schema, verifySchema=False)


def report(spark: SparkSession, output: Output, job: Job, plan: Plan) -> int:
    """Counts the rows of the output; returns 0 if every image has a caption, else 1.

    Raises:
        RuntimeError: There are more or fewer rows than images.
    """
    from serving.bulk.inputs import literal
    from serving.bulk.worker import CAPTIONS, UNREADABLE, schema

    folders = [literal(output.chunk(chunk.number)) for chunk in plan.chunks]
    reader = spark.read.schema(schema(job)).option("basePath", output.path)
    rows = reader.format(_FORMATS[job.format]).load(folders)
    counts = {row["output"]: row["count"] for row in rows.groupBy("output").count().collect()}
    captions, unreadable = counts.get(CAPTIONS, 0), counts.get(UNREADABLE, 0)
    total = sum(chunk.images for chunk in plan.chunks)
    if captions + unreadable != total:
        raise RuntimeError(f"{output.path} has {captions + unreadable} rows for {total} images.")
    print(f"{captions} images captioned, in {output.path}/chunk=*/output={CAPTIONS}")
    if unreadable:
        print(f"{unreadable} could not be read, see {output.path}/chunk=*/output={UNREADABLE}")
    return 1 if unreadable else 0


if __name__ == "__main__":
    sys.exit(main())
