"""The command: sections, shapes, bad arguments, a table and a file for each section."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import subprocess
import sys

import pytest

from benchmarks import batches, case, models, run, search, step
from benchmarks.case import Case, Settings
from benchmarks.sections import SECTIONS
from benchmarks.shapes import DEFAULT, EVERY, TOY

QUICK = ["--batch-sizes", "4", "8", "--batch-size", "8", "--images", "16", "--repeats", "1"]
QUICK += ["--search-batches", "3", "--export-batches", "1", "2", "--shapes", "toy"]
ROWS = {"pipeline": 1, "epoch": 1, "search": 2, "export": 2, "memory": 2}


@pytest.fixture
def measured(tmp_path, capsys):
    """Runs the command on a section; its report and what it printed."""

    def measure(name, *flags):
        path = tmp_path / "report.json"
        assert run.main(["--only", name, "--json", str(path), *QUICK, *flags]) == 0
        return json.loads(path.read_text("utf-8")), capsys.readouterr().out

    return measure


@pytest.fixture
def in_process(monkeypatch):
    """In this process, which has loaded TensorFlow."""
    monkeypatch.setattr(run, "in_own_process", case.measure)


@pytest.fixture
def quick(in_process, monkeypatch):
    """Few of the graphs, which take long."""
    monkeypatch.setattr(models, "PRECISIONS", ("float32",))
    monkeypatch.setattr(search, "BEAMS", (2,))
    parts = ("baseline float32", "search")
    monkeypatch.setitem(SECTIONS, "memory", dataclasses.replace(SECTIONS["memory"], parts=parts))


@pytest.mark.parametrize(
    "name",
    ["pipeline", "epoch", "search", "memory", pytest.param("export", marks=pytest.mark.slow)],
)
def test_a_section_fills_its_tables(name, measured, quick):
    report, printed = measured(name)
    assert_filled(name, report, printed)
    for table in SECTIONS[name].tables:
        assert len(report["tables"][table]) == ROWS[table]


@pytest.mark.slow
def test_start_up_fills_its_tables(measured):
    report, printed = measured("startup")
    assert_filled("startup", report, printed)
    (row,) = report["tables"]["startup"]
    # Not above 1: one start of each, and on a loaded machine either may be the slower.
    assert row["times_imports"] == pytest.approx(row["first_step_s"] / row["imports_s"])
    spent = sum(phase["seconds"] for phase in report["tables"]["phases"])
    assert spent == pytest.approx(row["first_step_s"], rel=0.01)


@pytest.mark.slow
def test_every_variant_of_the_usual_run_takes_steps(measured, in_process, monkeypatch):
    for module in (batches, step):
        monkeypatch.setattr(module, "ROTATION", 1)  # a graph per length takes seconds
    # As a large product does where the processor has no bfloat16.
    monkeypatch.setattr(step, "MatrixProduct", functools.partial(step.MatrixProduct, size=64))
    report, printed = measured("step")
    assert_filled("step", report, printed)
    rows = report["tables"]["step"]
    assert len(rows) == 7 and sum(row["xla"] for row in rows) == 2
    assert len(report["tables"]["sweep"]) == 2 * 3


def assert_filled(name, report, printed):
    section = SECTIONS[name]
    for table, (title, columns) in section.tables.items():
        assert title in printed
        for row in report["tables"][table]:
            assert {column.key for column in columns} <= row.keys()
            numbers = [v for v in row.values() if isinstance(v, float)]
            assert numbers and all(map(math.isfinite, numbers))
            assert row["peak_mb"] > 0 and row["shape"] == "toy"
    assert report["machine"]["cpu"] in printed and report["failed"] == []
    assert report["settings"]["batch_sizes"] == [4, 8]


def test_a_case_runs_in_a_process_of_its_own():
    result = run.in_own_process(Case("memory", TOY, Settings(batch_size=4), "imports"))
    (row,) = result["tables"]["memory"]
    assert (row["what"], row["shape"]) == ("imports", "toy")
    assert 100 < row["peak_mb"] < 5000


def test_a_case_survives_its_command_line():
    given = Case("step", TOY, Settings(batch_sizes=(3, 4), full=True), "part")
    assert Case.from_json(given.to_json()) == given


def test_a_failed_case_is_told_and_the_others_continue(monkeypatch, capsys):
    def fail(case):
        raise subprocess.CalledProcessError(1, sys.executable)

    monkeypatch.setattr(run, "in_own_process", fail)
    assert run.main(["--only", "export,search", "--shapes", "toy"]) == 1
    said = capsys.readouterr()
    assert "Failed: export toy" in said.err and "Failed: search toy" in said.err
    assert "Nothing was measured." in said.out


def test_a_run_that_is_stopped_keeps_the_sections_that_are_done(tmp_path, monkeypatch):
    path, machine = tmp_path / "new" / "folder" / "report.json", {"cpu": "some"}

    def stop_at_the_second(given):
        if given.section == "search":
            kept.append(json.loads(path.read_text("utf-8")))
            raise KeyboardInterrupt
        row = {column.key: 1.0 for column in SECTIONS["export"].tables["export"][1]}
        return {"tables": {"export": [row]}, "machine": machine}

    kept = []
    monkeypatch.setattr(run, "in_own_process", stop_at_the_second)
    argv = ["--only", "export,search", "--shapes", "toy", "--json", str(path)]
    assert run.main(argv) == 130
    (report,) = kept
    assert json.loads(path.read_text("utf-8")) == report
    assert report["machine"] == machine and len(report["tables"]["export"]) == 1
    assert len(report["load_average"]) == 2 and report["settings"]["repeats"] == 3


def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(run, "in_own_process", lambda _: pytest.fail("measured"))
    (tmp_path / "file").touch()
    for path, complaint in (
        (tmp_path, "`--json`: expected a file, got the folder"),
        (tmp_path / "file" / "report.json", "File exists"),
    ):
        assert run.main(["--only", "export", "--shapes", "toy", "--json", str(path)]) == 2
        assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--only", "step,nonsense"], "`--only`: expected some of step, pipeline,"),
        (["--shapes", "huge"], "`--shapes`: expected some of flickr8k, coco, toy,"),
        (["--repeats", "0"], "`--repeats`: expected positive integers, got 0"),
        (["--batch-sizes"], "`--batch-sizes`: expected positive integers, got ()"),
    ],
)
def test_a_bad_argument_is_named(flags, complaint, capsys):
    assert run.main(flags) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "shapes"), [([], DEFAULT), (["--full"], EVERY), (["--shapes", "toy"], [TOY])]
)
def test_sections_and_shapes_by_default(flags, shapes, monkeypatch):
    asked = []

    def note(given):
        asked.append((given.section, given.shape))
        return {"tables": {}, "machine": {}}

    monkeypatch.setattr(run, "in_own_process", note)
    assert run.main(flags) == 0
    assert {section for section, _ in asked} == set(SECTIONS)
    assert {shape for section, shape in asked if section == "step"} == set(shapes)
    assert [shape for section, shape in asked if section == "startup"] == [shapes[0]]
