"""Spark sessions, for `serving.bulk` and `training.extract`, which import nothing of each other.

Spark is an extra: `pip install -e ".[bulk]"`. It is imported only when a session is opened, so the
library does not depend on it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sat_tf.util.errors import installation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tqdm import tqdm

TRIES = 4
"""Times that a task is tried before the job fails; Spark's default on a cluster."""
_LEAST_JAVA = 17
_LOG_SETTINGS = Path(__file__).resolve().with_name("log4j2.properties")
_LOOK_SECONDS = 1.0  # between two looks at the tasks that are done


def check_spark() -> None:
    """Checks that PySpark, PyArrow and Java are there.

    Raises:
        OSError: One is missing; the message says how to get it.
    """
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
    """Opens the Spark session of this process.

    Args:
        name: The application's name.
        master: `local[2]`, `spark://HOST:PORT`, ...; None takes what `spark-submit` or Spark's
            configuration says, or all cores of this machine.

    Raises:
        OSError: Spark or Java is missing, or the master cannot be reached.
    """
    check_spark()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).config("spark.ui.showConsoleProgress", "false")
    if master or not _is_submitted():
        builder = builder.master(with_retries(master or "local[*]"))
    if not _is_submitted():
        for key, value in _settings(master or "local").items():
            builder = builder.config(key, value)
        # Spark would take the first python3 of each machine.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        return builder.getOrCreate()
    except Exception as error:  # py4j's, Spark's and Python's own
        named = f" with master {master}" if master else ""
        raise OSError(f"Spark did not start{named}: {root_cause(error)}") from error


def _is_submitted() -> bool:
    """Returns whether `spark-submit` runs this process, whose settings then count."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _settings(master: str) -> dict[str, str]:
    settings = {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
        # Workers on this machine run the code of this process.
        "spark.executorEnv.PYTHONPATH": _python_path(),
    }
    if master.startswith("local"):
        # Nobody else has to reach a session on one machine.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
        os.environ["PYTHONPATH"] = _python_path()
    return settings


def with_retries(master: str) -> str:
    """Returns a master whose tasks are tried again, as on clusters; a number of its own stays."""
    found = re.fullmatch(r"local(?:\[([^],]+)\])?", master)
    return f"local[{found[1] or 1},{TRIES}]" if found else master


def root_cause(error: Exception) -> str:
    """Returns the line of an error of Spark that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    # The last line of a Python traceback is the error itself.
    raised = [line for line in lines if re.match(r"[A-Za-z_.]+(Error|Exception|Timeout)\b: ", line)]
    found = [*causes[-1:], *raised[-1:], *lines[:1], type(error).__name__]
    return found[0].removeprefix("Caused by: ")


@contextlib.contextmanager
def watched(spark: SparkSession, bar: tqdm, items: int) -> Iterator[None]:
    """Moves a bar while the tasks of the job inside are done, by so many items in the end."""
    before, ended = bar.n, threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def look() -> None:
        while not ended.wait(_LOOK_SECONDS):
            with contextlib.suppress(Exception):  # the job may be over
                for number in tracker.getActiveJobsIds():
                    for stage in tracker.getJobInfo(number).stageIds:
                        info = tracker.getStageInfo(stage)
                        done = items * info.numCompletedTasks // info.numTasks
                        bar.update(max(before + done - bar.n, 0))

    watcher = threading.Thread(target=look, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
    bar.update(before + items - bar.n)


def _python_path() -> str:
    here = str(Path(__file__).resolve().parents[1])
    return os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
