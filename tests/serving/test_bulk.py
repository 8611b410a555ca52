"""Bulk captions: each image has one row, on a local Spark; errors come before Spark starts."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from sat_tf import load
from sat_tf.util.files import read_content
from serving import bulk

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path, images) -> Path:
    """Photographs, and files called like one: broken, empty, and a pipe that would hang."""
    folder = tmp_path / "my photos [1] 5%"
    (folder / "deep" / "er").mkdir(parents=True)
    for name, content in zip(("a.png", "deep/er/b.PNG"), images.files, strict=False):
        (folder / name).write_bytes(content)
    (folder / "broken.jpg").write_bytes(b"no image")
    (folder / "empty.jpg").write_bytes(b"")
    os.mkfifo(folder / "pipe.jpg")
    (folder / ".hidden.jpg").write_bytes(b"x")
    (folder / "notes.md").write_text("x")
    return folder


def names(paths) -> list[str]:
    return [Path(path).name for path in paths]


def test_images_are_found_in_folders_globs_and_lists_each_once(folder, monkeypatch):
    every = ["a.png", "broken.jpg", "empty.jpg", "pipe.jpg", "b.PNG"]
    assert names(bulk.find_images([str(folder)])) == every
    monkeypatch.chdir(folder)
    assert names(bulk.find_images(["**/*.PNG", "deep", "a.png"])) == ["b.PNG", "a.png"]
    text = "\ufeffgone.jpg\r\n\n  a.png\nodd\u2028name.jpg\na.png\n"
    Path("list.txt").write_text(text, "utf-8")
    found = bulk.find_images(["list.txt"])
    assert names(found) == ["gone.jpg", "a.png", "odd\u2028name.jpg"]
    assert all(map(os.path.isabs, found))
    with pytest.raises(ValueError, match="`--input`: expected images.*nothing"):
        bulk.find_images(["*.tiff"])


@pytest.fixture
def command(litert_exports, tmp_path, monkeypatch):
    """Runs the command in this process; returns its status."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(kind: str, *flags) -> int:
        flags = ("--run-dir", litert_exports(kind), "--output", tmp_path / "out [2]", *flags)
        return bulk.main([*map(str, flags), "--master", "local[1]"])

    return run


def test_what_cannot_work_is_an_error_before_spark_starts(
    command, folder, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(bulk, "open_session", lambda *_: pytest.fail("started"))
    with monkeypatch.context() as without:
        without.setattr(bulk, "check_spark", lambda: None)
        assert command("none", "--input", folder, "--maps") == 2
        assert "`--maps`: expected a captioner with attention" in capsys.readouterr().err
        assert command("soft", "--input", folder, "t.parquet") == 2
        assert "expected either tables or paths of images" in capsys.readouterr().err
        (tmp_path / "out [2]").mkdir()
        assert command("soft", "--input", folder) == 2
        assert "exists: choose another folder" in capsys.readouterr().err
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert command("soft", "--input", folder) == 2
    missing = capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert command("soft", "--input", folder) == 2
    assert 'pip install -e ".[bulk]"' in capsys.readouterr().err
    assert "Spark needs Java 17 or later" in missing or 'pip install -e ".[bulk]"' in missing


def test_the_cause_of_an_error_of_spark_is_its_last_line():
    trace = "An error occurred.\nTraceback:\n  File x\nsat_tf.errors.RunError: no run\n\tat org.x"
    assert bulk.root_cause(Exception(trace)) == "sat_tf.errors.RunError: no run"
    assert bulk.root_cause(Exception("java.E\nCaused by: java.io.IOException: full")) == (
        "java.io.IOException: full"
    )
    assert bulk.root_cause(ValueError()) == "ValueError"


@pytest.mark.slow
def test_each_image_has_one_row_and_the_unreadable_ones_a_reason(
    command, folder, litert_exports, tmp_path, capfd
):
    try:
        bulk.check_spark()
    except OSError as error:
        pytest.skip(str(error))
    from pyarrow import parquet, table

    files = [folder / name for name in ("a.png", "broken.jpg", "deep/er/b.PNG", "empty.jpg")]
    contents = {"path": names(files), "content": [read_content(file) for file in files]}
    parquet.write_table(table(contents), tmp_path / "in [1].parquet")
    light = load(litert_exports("soft"))
    for source in (folder, tmp_path / "in [1].parquet"):
        out = tmp_path / "out [2]" / source.stem
        assert command("soft", "--maps", "--input", source, "--output", out) == 1
        assert "2 images captioned" in capfd.readouterr().out
        rows = {Path(row["path"]).name: row for row in parquet.read_table(out).to_pylist()}
        assert len(rows) == (5 if source == folder else 4)
        reasons = {name: row["reason"] for name, row in rows.items() if row["reason"]}
        assert reasons.pop("broken.jpg") and reasons.pop("empty.jpg") == "the file is empty"
        pipe = {"pipe.jpg": "cannot be read: It is not a file"}
        assert reasons == (pipe if source == folder else {})
        for file in files[::2]:
            row, expected = rows[file.name], light.caption(file)
            assert (row["caption"], row["words"]) == (expected.text, list(expected.words))
            np.testing.assert_allclose(row["log_probs"], expected.log_probs, atol=1e-5)
            maps = np.frombuffer(row["attention"], "<f2").reshape(row["attention_shape"])
            np.testing.assert_allclose(maps, expected.alpha, atol=1e-3)
            assert row["alternatives"][0]["caption"] == expected.alternatives[0][0]
