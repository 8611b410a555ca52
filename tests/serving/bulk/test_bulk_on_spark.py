"""Jobs on a local Spark whose workers and driver are killed: each image exactly once."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sat_tf.spark import check_spark
from serving.bulk.__main__ import main
from tests.serving import toys
from tests.serving.processes import python_workers
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
IMAGES, CHUNK = 40, 16
SECONDS = 600.0
FLAGS = ("--batch-size", "4", "--chunk-size", str(CHUNK), "--master", "local[2]", "--maps")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> Path:
    """An export and a list of images: two are broken, one is gone, the last waits for a reader."""
    try:
        check_spark()
    except OSError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("bulk")
    toys.export(folder / "export", 3)
    names = [folder / f"{n:03d}.jpg" for n in range(IMAGES)]
    for path in names:
        path.write_bytes(b"ok")
    os.mkfifo(folder / "pipe")
    names[-1].write_bytes(f"hold:{folder / 'pipe'}".encode())
    names[5].write_bytes(b"broken")
    names[20].write_bytes(b"")
    names[30].unlink()
    (folder / "list.txt").write_text("".join(f"{path}\n" for path in names))
    return folder


def command_of(places: Path, output: str, *flags: str) -> list[str]:
    command = [sys.executable, "-m", "serving.bulk", "--export", str(places / "export")]
    command += ["--input", str(places / "list.txt"), "--output", str(places / output)]
    return [*command, *FLAGS, *flags]


def start(places: Path, output: str, *flags: str) -> subprocess.Popen:
    (places / "temporary").mkdir(exist_ok=True)
    own = dict.fromkeys(("TMPDIR", "SPARK_LOCAL_DIRS"), str(places / "temporary"))
    return subprocess.Popen(
        command_of(places, output, *flags),
        cwd=ROOT,
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process: subprocess.Popen, places: Path | None = None) -> str:
    """Waits for a job's end, and with `places` lets its last image be captioned."""
    reader = (
        subprocess.Popen(["cat", places / "pipe"], stdout=subprocess.DEVNULL) if places else None
    )
    try:
        return process.communicate(timeout=SECONDS)[0]
    finally:
        process.kill()
        if reader:
            reader.kill()
            reader.wait()


def wait_for(process: subprocess.Popen, condition) -> None:
    """Waits until something is so while a process runs."""
    eventually(lambda: condition() or process.poll() is not None, SECONDS)
    assert process.poll() is None, process.communicate()[0]


def committed(out: Path) -> list[Path]:
    return list(out.glob("chunk=*/_SUCCESS"))


def rows(out: Path) -> list[dict]:
    parts = out.glob("chunk=*/output=*/part-*.json")
    lines = [line for part in parts for line in part.read_text("utf-8").splitlines()]
    return sorted((json.loads(line) for line in lines), key=lambda row: row["path"])


@pytest.fixture(scope="module")
def undisturbed(places) -> list[dict]:
    process = start(places, "undisturbed")
    said = end(process, places)
    assert process.returncode == 1, said
    assert f"{IMAGES - 3} images captioned" in said and "3 could not be read" in said
    last = rf"Captions: {IMAGES}/{IMAGES} images, *[\d.]+ images/s, 00:00 left"
    assert re.search(last, said), said
    return rows(places / "undisturbed")


def test_each_image_has_one_row_and_the_unreadable_ones_a_reason(undisturbed):
    assert [Path(row["path"]).name for row in undisturbed] == [
        f"{n:03d}.jpg" for n in range(IMAGES)
    ]
    reasons = {int(Path(r["path"]).stem): r["reason"] for r in undisturbed if "reason" in r}
    assert reasons == {
        5: "not what a toy reads",
        20: "the file is empty",
        30: "cannot be read: No such file or directory",
    }
    assert undisturbed[0]["caption"] == "a cat 3" and undisturbed[0]["version"] == "3"
    assert undisturbed[0]["attention_shape"] == [3, 3, 3]


def test_killing_a_worker_and_the_driver_leaves_the_output_of_an_undisturbed_run(
    places, undisturbed
):
    out = places / "killed"
    first = start(places, "killed")
    wait_for(first, lambda: python_workers(first.pid))
    os.kill(python_workers(first.pid)[0], signal.SIGKILL)
    wait_for(first, lambda: committed(out))
    assert list(places.glob("temporary/**/captioner.zip"))
    first.kill()  # the last chunk is not done: its image waits
    end(first)
    eventually(lambda: not list(places.glob("temporary/**/captioner.zip")))
    assert 1 <= len(committed(out)) < -(-IMAGES // CHUNK)
    kept = {path.parent.name: path.stat().st_mtime_ns for path in committed(out)}
    second = start(places, "killed")
    said = end(second, places)
    assert second.returncode == 1, said
    assert f"of {IMAGES} images are done" in said
    assert rows(out) == undisturbed
    assert kept.items() <= {p.parent.name: p.stat().st_mtime_ns for p in committed(out)}.items()


@pytest.fixture
def run_here(places, monkeypatch):
    """Runs the command in this process, which starts one JVM; returns its status."""
    (places / "temporary").mkdir(exist_ok=True)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(places / "temporary"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # Spark adds to it
    return lambda output, *flags: main(command_of(places, output, *flags)[3:])


def test_a_table_of_contents_is_captioned_into_parquet(places, run_here, capfd):
    from pyarrow import parquet, table

    folder = places / "my photos 100% {a}" / "photos [1].parquet"
    folder.mkdir(parents=True)
    for part in range(2):
        names = [f"{part}{n}" for n in range(5)]
        contents = [b"ok"] * 4 + [b"broken"]
        parquet.write_table(table({"path": names, "content": contents}), folder / f"{part}.parquet")
    flags = ("--format", "parquet", "--input", str(folder))
    for said in (
        "8 images captioned",
        "10 of 10 images are done",
    ):  # the second time nothing is left
        assert run_here("out [2024] 5%", *flags) == 1
        assert said in capfd.readouterr().out
    found = parquet.read_table(places / "out [2024] 5%").to_pylist()
    assert sorted(row["path"] for row in found) == [f"{p}{n}" for p in range(2) for n in range(5)]
    assert {row["reason"] for row in found} == {None, "not what a toy reads"}


def test_an_output_that_cannot_be_taken_is_an_error_without_a_traceback(places, run_here, capfd):
    (places / "else").mkdir()
    (places / "else" / "thesis.tex").write_text("")
    assert run_here("else") == 2
    said = capfd.readouterr().err
    assert "is not empty and holds no bulk captions (it has thesis.tex)" in said
    output = "nowhere://bucket/out"
    assert run_here("unused", "--output", output) == 2
    said = capfd.readouterr().err
    assert f"Error: The output {output} cannot be" in said, said
    assert "Traceback" not in said and "\tat org." not in said
