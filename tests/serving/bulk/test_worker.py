"""Rows of the output, made inside a worker."""

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from serving.bulk import worker
from serving.bulk.job import Job, check_export, find_captioner
from serving.litert import load
from tests.serving import toys

JOB = Job(("photos",), "7", "", maps=True, format="jsonl", batch_size=2, chunk_size=8)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return toys.export(tmp_path_factory.mktemp("toy"), 7)


@pytest.fixture
def shipped(toy, monkeypatch):
    """Stands for the engine, which unpacks the export."""
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setattr(pyspark, "SparkFiles", SimpleNamespace(get=lambda _: str(toy)))


def test_each_file_of_the_slices_has_one_row_in_order(shipped, tmp_path):
    names = [f"{n}.jpg" for n in range(7)]
    for n, name in enumerate(names):
        (tmp_path / name).write_bytes(b"ok" if n != 3 else b"broken")
    (tmp_path / "5.jpg").unlink()
    (tmp_path / "6.jpg").write_bytes(b"")
    paths = [str(tmp_path / name) for name in names]
    rows = list(worker.caption_slices([0, 1, 2], paths, 3, JOB, 1))
    assert [row["path"] for row in rows] == paths
    assert [row.get("caption") for row in rows] == ["a cat 7"] * 3 + [None, "a cat 7", None, None]
    reasons = ["not what a toy reads", "cannot be read: No such file or directory"]
    assert [row.get("reason") for row in rows[3:]] == [
        reasons[0],
        None,
        reasons[1],
        "the file is empty",
    ]
    assert {row["output"] for row in rows} == {"captions", "unreadable"}


def test_a_row_has_scores_alternatives_log_probs_and_float16_maps(shipped):
    (row,) = worker.caption_contents([("a", bytearray(b"ok"))], JOB, 1)
    assert row["score"] == -0.5 and row["version"] == "7"
    assert row["alternatives"] == [{"caption": "a dog", "score": -1.5}]
    assert row["log_probs"] == [-0.25] * 3
    maps = np.frombuffer(row["attention"], "<f2").reshape(row["attention_shape"])
    np.testing.assert_array_equal(maps.reshape(3, 9), np.eye(9)[:3])
    assert set(row) <= set(worker.COLUMNS)


LIGHT = """
import json, sys
for name in ("tensorflow", "keras", "grpc"):
    sys.modules[name] = None  # an import of it fails
from types import SimpleNamespace
import pyspark
folder, *paths = sys.argv[1:]
pyspark.SparkFiles = SimpleNamespace(get=lambda _: folder)
from serving.bulk import worker
from serving.bulk.job import Job
job = Job(("photos",), "7", "", maps=True, format="jsonl", batch_size=2, chunk_size=8)
for row in worker.caption_slices([0, 1], paths, 2, job, 1):
    print(json.dumps({name: row.get(name) for name in ("path", "caption", "reason", "version")}))
"""


def test_over_graphs_a_worker_needs_no_tensorflow(litert_exports, images, tmp_path):
    pytest.importorskip("pyspark")
    paths = [tmp_path / f"{n}.png" for n in range(4)]
    for path, content in zip(paths, images.files[:4], strict=True):
        path.write_bytes(content)
    paths[1].write_bytes(b"no image")  # in the middle
    found = find_captioner(litert_exports("soft"), None, maps=True)
    for name, path in found.files.items():
        (tmp_path / "shipped").mkdir(exist_ok=True)
        shutil.copy(path, tmp_path / "shipped" / name)
    command = [sys.executable, "-c", LIGHT, tmp_path / "shipped", *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    captioner = load(litert_exports("soft"))
    expected = [None if n == 1 else captioner.caption(p).text for n, p in enumerate(paths)]
    assert [row["path"] for row in rows] == list(map(str, paths))
    assert [row["caption"] for row in rows] == expected
    assert [row["reason"] is None for row in rows] == [True, False, True, True]
    assert rows[1]["reason"].startswith("Cannot read the image: it is in none of")


def test_maps_need_attention(litert_exports, toy, tmp_path):
    check_export(toy, maps=True)
    with pytest.raises(ValueError, match="`--maps`: expected an export with attention"):
        check_export(toys.export(tmp_path, 1, attention=False), maps=True)
    with pytest.raises(ValueError, match="`--maps`: expected a captioner with attention"):
        find_captioner(litert_exports("none"), None, maps=True)


def test_an_export_is_checked_without_loading_it(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="`--export`: expected a SavedModel"):
        check_export(tmp_path, maps=False)
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(ValueError, match=r"expected a SavedModel, got .*, whose .* is empty"):
        check_export(tmp_path, maps=False)
