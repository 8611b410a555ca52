"""Rows of the output, made inside a worker."""

from types import SimpleNamespace

import numpy as np
import pytest

from serving.bulk import worker
from serving.bulk.job import Job
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


def test_an_export_is_checked_without_loading_it(toy, tmp_path):
    worker.check_export(toy, maps=True)
    with pytest.raises(ValueError, match="`--maps`: expected an export with attention"):
        worker.check_export(toys.export(tmp_path, 1, attention=False), maps=True)
    (tmp_path / "saved_model.pb").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="`--export`: expected a SavedModel"):
        worker.check_export(tmp_path, maps=False)
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(ValueError, match=r"expected a SavedModel, got .*, whose .* is empty"):
        worker.check_export(tmp_path, maps=False)
