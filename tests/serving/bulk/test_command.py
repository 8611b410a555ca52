"""The command's errors before Spark starts."""

import json
import sys
from dataclasses import asdict

import pytest

from serving.bulk.__main__ import main
from serving.bulk.job import Job, check_same, find_captioner, read_job
from tests.serving import toys


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return toys.export(tmp_path_factory.mktemp("toy"), 7)


def bulk(toy, tmp_path, capsys, *flags) -> str:
    """The error of a command."""
    command = ["--export", str(toy), "--input", str(tmp_path), "--output", str(tmp_path / "out")]
    assert main([*command, *flags]) == 2
    assert not (tmp_path / "out").exists()
    return capsys.readouterr().err


def test_a_folder_without_a_version_is_refused(tmp_path, capsys):
    assert "`--export`: expected the folder of an export" in bulk(tmp_path, tmp_path, capsys)


def test_missing_java_is_told_with_the_package_to_install(toy, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    said = bulk(toy, tmp_path, capsys)
    assert "Spark needs Java 17 or later, and there is none in $JAVA_HOME" in said
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "")
    assert "there is none in $PATH" in bulk(toy, tmp_path, capsys)


def test_the_missing_extra_is_told(toy, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert 'pip install -e ".[bulk]"' in bulk(toy, tmp_path, capsys)


def test_a_pattern_without_images_is_refused_before_spark_starts(
    toy, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("serving.bulk.__main__.check_spark", lambda: None)
    monkeypatch.setattr("serving.bulk.__main__.open_session", lambda *_: pytest.fail("started"))
    assert "`--input`: expected images" in bulk(toy, tmp_path, capsys)


JOB = Job(("/a", "/b"), "1", "f00", False, "jsonl", 32, 4096)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("version", "2", "begun with '1', not '2', as its version"),
        ("fingerprint", "bad", "begun with another captioner as its fingerprint"),
        ("inputs", ("/a",), "as its inputs"),
        ("maps", True, "as its maps"),
    ],
)
def test_an_output_of_another_job_is_refused(name, value, said):
    check_same(JOB, JOB, "out")
    other = Job(**vars(JOB) | {name: value})
    with pytest.raises(ValueError, match=said):
        check_same(JOB, other, "out")


def test_a_job_is_read_as_it_was_written():
    values = asdict(JOB)
    assert read_job(json.dumps(values)) == JOB


def test_the_fingerprint_follows_graph_and_weights(tmp_path):
    version = toys.export(tmp_path, 1)
    before = find_captioner(tmp_path, version, maps=False)
    (version / "assets.extra").mkdir()
    assert find_captioner(tmp_path, version, maps=False).fingerprint == before.fingerprint
    with next((version / "variables").glob("*.data*")).open("ab") as file:
        file.write(b"\0")
    after = find_captioner(tmp_path, version, maps=False)
    assert after.fingerprint != before.fingerprint and after.version == before.version == "1"
