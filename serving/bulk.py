"""Caption many images on Spark: `python -m serving.bulk --input photos --output captions`.

Workers caption over LiteRT graphs, without TensorFlow, and write Parquet. Spark tries a task of a
worker that dies again and drops its output, so each image has exactly one row.
"""

from __future__ import annotations

import functools
import glob
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tyro

from sat_tf.inference import published
from sat_tf.util.commands import exit_status, loading, parse_flags
from sat_tf.util.errors import installation, invalid_value
from sat_tf.util.files import as_utf8, read_content

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from sat_tf.inference.captions import Caption
    from sat_tf.inference.litert_captioner import LiteRTCaptioner

SCHEMA = (
    "path string, caption string, score float, "
    "alternatives array<struct<caption: string, score: float>>, words array<string>, "
    "log_probs array<float>, familiarity float, confidence float, level string, remark string, "
    "attention binary, attention_shape array<int>, captioner string, reason string"
)
"""Columns of the output with Spark's types; `reason` says why an image has no caption."""

_ARCHIVE = "captioner"  # unpacked under this name on every machine
_TRIES = 4  # of a task on this machine, as is Spark's default on a cluster
_IMAGES_PER_TASK = 128  # a task that dies is computed again
_LEAST_JAVA = 17


@dataclass(frozen=True)
class Arguments:
    """Caption many images on Spark, each exactly once."""

    input: tuple[str, ...]
    """Folders, globs, lists (*.txt, a path per line); or tables (*.parquet) with a column `path`,
    and a column `content` if they hold the image files themselves."""
    output: str
    """Folder of the captions, Parquet; new."""
    run_dir: Path = Path(published.DEFAULT)
    """Run, export for LiteRT, or folder or name of a published captioner."""
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
    """Captions the images; returns the exit status."""
    with loading():
        from sat_tf.inference.load import load

    check_spark()
    tables = [name for name in arguments.input if name.rstrip("/").endswith(".parquet")]
    paths = find_images([name for name in arguments.input if name not in tables])
    if tables and paths:
        raise invalid_value("--input", "either tables or paths of images", "both")
    output = arguments.output if "://" in arguments.output else os.path.abspath(arguments.output)
    if os.path.exists(output):
        raise ValueError(
            f"The output {output} exists: choose another folder with `--output`, or remove it."
        )
    captioner = load(arguments.run_dir, "litert")
    if arguments.maps and captioner.config.attention.kind == "none":
        raise invalid_value("--maps", "a captioner with attention", str(arguments.run_dir))
    spark = open_session("sat_tf bulk captioning", arguments.master)
    try:
        images = read_tables(spark, tables) if tables else to_table(spark, paths)
        ship(spark, captioner)
        cores = int(spark.conf.get("spark.task.cpus", "1"))
        caption = functools.partial(
            caption_rows, name=captioner.path.resolve().name, maps=arguments.maps, cores=cores
        )
        # Not by mapInArrow, which needs pandas.
        rows = images.rdd.mapPartitions(caption)
        spark.createDataFrame(rows, SCHEMA, verifySchema=False).write.parquet(output)
        return report(spark, output)
    except Exception as error:
        if isinstance(error, ValueError) and not type(error).__module__.startswith("pyspark"):
            raise
        raise OSError(f"Spark gave up: {root_cause(error)}") from error
    finally:
        spark.stop()


def find_images(patterns: Iterable[str]) -> list[str]:
    """Returns the image files of folders, globs and lists as absolute paths, each once."""
    from sat_tf.inference.captioning import image_files

    found: list[str] = []
    for pattern in patterns:
        if pattern.endswith(".txt"):
            text = Path(pattern).read_bytes().decode("utf-8-sig", "surrogateescape")
            lines = (line.strip(" \t\r") for line in text.split("\n"))
            found += [line for line in lines if line]
            continue
        matches = [pattern] if os.path.lexists(pattern) else glob.glob(pattern, recursive=True)
        if not matches:
            raise invalid_value("--input", "images", f"{pattern}, which matches nothing")
        found += map(str, image_files(sorted(map(Path, matches))))
    return [as_utf8(path) for path in dict.fromkeys(map(os.path.abspath, found))]


def to_table(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Returns the paths as a table, in small tasks."""
    rows = spark.createDataFrame([(path,) for path in paths], "path string")
    cores = spark.sparkContext.defaultParallelism
    return rows.repartition(max(-(-len(paths) // _IMAGES_PER_TASK), min(len(paths), cores)))


def read_tables(spark: SparkSession, names: Sequence[str]) -> DataFrame:
    """Reads tables of paths, or of paths and contents, as Spark's source `binaryFile` has them."""
    escaped = [re.sub(r"[*?\[\]{}\\]", r"\\\g<0>", n) if os.path.exists(n) else n for n in names]
    table = spark.read.parquet(*escaped)
    columns = {name: kind for name, kind in table.dtypes if name in ("path", "content")}
    if columns not in ({"path": "string"}, {"path": "string", "content": "binary"}):
        expected = "tables with a column `path` of strings, and a binary `content` if any"
        raise invalid_value("--input", expected, str(dict(table.dtypes)))
    return table.select(*columns)


def ship(spark: SparkSession, captioner: LiteRTCaptioner) -> None:
    """Lets Spark copy a captioner's graphs to every machine."""
    from sat_tf.inference.litert_captioner import copy_graphs

    folder = tempfile.mkdtemp(dir=spark.sparkContext._temp_dir)  # which Spark removes
    copy_graphs(captioner, Path(folder, "graphs"))
    archive = shutil.make_archive(f"{folder}/{_ARCHIVE}", "zip", f"{folder}/graphs")
    spark.sparkContext.addArchive(f"{archive}#{_ARCHIVE}")


def caption_rows(
    rows: Iterable[Row], name: str, maps: bool, cores: int
) -> Iterator[dict[str, Any]]:
    """Captions rows of path, or of path and content, inside a worker on `cores` threads."""
    from pyspark import SparkFiles

    from sat_tf.images.pillow import decode, resize
    from sat_tf.inference.captioning import read_ahead

    captioner = load_graphs(SparkFiles.get(_ARCHIVE), cores)
    encoder, search = captioner.config.encoder, captioner.config.search
    form = encoder.image_size, encoder.resize

    def pixels(row: Row) -> tuple[str, np.ndarray | str]:
        path, *content = row
        try:
            content = bytes(content[0] or b"") if content else read_content(Path(path))
            return path, resize(decode(content), *form) if content else "the file is empty"
        except OSError as error:
            return path, f"cannot be read: {error.strerror or error}"
        except ValueError as error:
            return path, str(error)

    for path, image in read_ahead(rows, pixels):
        answer = image if isinstance(image, str) else captioner.beams([image], search, most=1)[0][0]
        yield {"path": path, "captioner": name} | to_row(answer, maps)


@functools.cache  # once per process: Spark gives a Python worker one task after another
def load_graphs(folder: str, cores: int) -> LiteRTCaptioner:
    """Loads a captioner on as many threads."""
    from sat_tf.inference.litert_captioner import LiteRTCaptioner

    return LiteRTCaptioner(Path(folder), threads=cores)


def to_row(answer: Caption | str, maps: bool) -> dict[str, Any]:
    """Returns the columns of a caption, or of the reason why there is none."""
    from sat_tf.inference.confidence import remark

    if isinstance(answer, str):
        return {"reason": answer}
    level, sentence = remark(answer.familiarity, answer.confidence)
    row = {
        "caption": answer.text,
        "score": answer.score,
        "alternatives": [{"caption": text, "score": score} for text, score in answer.alternatives],
        "words": [*answer.words],
        "log_probs": answer.log_probs.tolist(),
        "familiarity": answer.familiarity,
        "confidence": answer.confidence,
        "level": level,
        "remark": sentence or None,
    }
    if maps and answer.alpha is not None:
        alpha = np.ascontiguousarray(answer.alpha, "<f2")
        row |= {"attention": bytearray(alpha.tobytes()), "attention_shape": [*alpha.shape]}
    return row


def report(spark: SparkSession, output: str) -> int:
    """Counts the rows of the output; returns 0 if every image has a caption, else 1."""
    escaped = re.sub(r"[*?\[\]{}\\]", r"\\\g<0>", output)
    rows = spark.read.schema(SCHEMA).parquet(escaped)
    total, unreadable = rows.count(), rows.where("reason is not null").count()
    print(f"{total - unreadable} images captioned, in {output}")
    if unreadable:
        print(f"{unreadable} could not be read: see the column `reason`")
    return 1 if unreadable else 0


def check_spark() -> None:
    """Raises an OSError if PySpark, PyArrow or Java is missing."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise OSError(
            f"Spark is needed, which is not installed ({error}): {installation('bulk')}"
        ) from error
    home = os.environ.get("JAVA_HOME")
    if not shutil.which("java", path=str(Path(home) / "bin") if home else None):
        where = f"$JAVA_HOME ({home})" if home else "$PATH"
        raise OSError(
            f"Spark needs Java {_LEAST_JAVA} or later, and there is none in {where}. On Debian and "
            f"Ubuntu: apt install openjdk-{_LEAST_JAVA}-jre-headless."
        )


def open_session(name: str, master: str | None = None) -> SparkSession:
    """Opens the session; without a master that of `spark-submit`, or all cores of this machine."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # its settings count
    if master or not submitted:
        builder = builder.master(master or f"local[*,{_TRIES}]")
    if not submitted:
        # Workers on this machine run the code of this process, by the same Python.
        here = str(Path(__file__).resolve().parents[1])
        code = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.config("spark.executorEnv.PYTHONPATH", code)
        builder = builder.config("spark.log.level", "FATAL")  # what fails is reported by us
        if (master or "local").startswith("local"):
            os.environ["PYTHONPATH"] = code
            builder = builder.config("spark.driver.host", "127.0.0.1")
            builder = builder.config("spark.ui.enabled", "false")
    try:
        return builder.getOrCreate()
    except Exception as error:  # py4j's, Spark's and Python's own
        named = f" with master {master}" if master else ""
        raise OSError(f"Spark did not start{named}: {root_cause(error)}") from error


def root_cause(error: Exception) -> str:
    """Returns the line of an error of Spark that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    # The last line of a Python traceback is the error itself.
    raised = [line for line in lines if re.match(r"[A-Za-z_.]+(Error|Exception|Timeout)\b: ", line)]
    found = [*causes[-1:], *raised[-1:], *lines[:1], type(error).__name__]
    return found[0].removeprefix("Caused by: ")


if __name__ == "__main__":
    # By its own name, so that workers import what they run.
    from serving import bulk

    sys.exit(bulk.main())
