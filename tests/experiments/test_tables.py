"""The experiments: files that can be run, and the tables that are made of their figures."""

import csv
import re
import runpy
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from experiments import tables

SCRIPTS = sorted(tables.FOLDER.glob("*.sh"))
FIGURES = sorted(path.stem for path in tables.FOLDER.glob("*.csv"))
PAGES = [tables.ROOT / "README.md", *sorted((tables.ROOT / "docs").rglob("*.md"))]
USERS = {"DATA", "WIDE", "BOXES", "TRAIN_BOXES"}  # folders of the user

_ALL_SETTINGS = [f"training.{name}" for name in ("train", "standardize")]


def test_the_tables_of_the_pages_are_those_of_the_figures():
    outdated = [page.name for page in PAGES if tables.filled(page) != page.read_text("utf-8")]
    assert outdated == []  # python -m experiments.tables --write
    text = "".join(page.read_text("utf-8") for page in PAGES)
    assert set(re.findall(r"<!-- table (\w+) -->", text)) == set(tables.COLUMNS)
    assert {path.stem for path in SCRIPTS} <= set(FIGURES)


@pytest.fixture(scope="module")
def commands(tmp_path_factory) -> dict[str, list[list[str]]]:
    """The commands of each experiment, as a substitute for Python saw them."""
    folder = tmp_path_factory.mktemp("stub")
    stub = folder / "python"
    stub.write_text('#!/bin/sh\nshift\nIFS="\t"\necho "$*" >> commands\n')
    stub.chmod(0o755)
    environment = {**dict.fromkeys(USERS, "folder"), "PATH": f"{folder}:/usr/bin:/bin"}
    found = {}
    for script in SCRIPTS:
        (place := folder / script.stem).mkdir()
        subprocess.run(["sh", script], env=environment, check=True, cwd=place)
        lines = (place / "commands").read_text().splitlines()
        found[script.stem] = [line.split("\t") for line in lines]
    return found


def test_experiments_name_no_folder_but_the_users():
    for script in SCRIPTS:
        text = script.read_text("utf-8")
        assert set(re.findall(r"\$\{?([A-Z][A-Z_]+)", text)) <= USERS
        assert not re.search(r"(?<![\w.\"])/(?!bin/sh)\w+/", text)


@pytest.mark.filterwarnings("ignore::RuntimeWarning:runpy")  # of modules that are imported
def test_experiments_use_flags_that_the_commands_have(commands, monkeypatch, capsys):
    used = defaultdict(set)
    for name, lines in commands.items():
        for module, *arguments in lines:
            flags = {text.replace("_", "-") for text in arguments if text.startswith("--")}
            used[module] |= set() if name.startswith("digits") else flags
    monkeypatch.setattr("sat_tf.util.commands.run_process", lambda main: sys.exit(main()))
    for module, flags in used.items():
        every = "--help-all" if module in _ALL_SETTINGS else "--help"
        monkeypatch.setattr(sys, "argv", [module, every])
        with pytest.raises(SystemExit):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        said = capsys.readouterr().out
        assert flags <= {flag.replace("_", "-") for flag in re.findall(r"--[\w.-]+", said)}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_numbers(name):
    with (tables.FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            assert line["run"] and line["score"]
            low, value, high = (float(line[key] or "nan") for key in ("low", "value", "high"))
            assert not (value < low or value > high)


def test_a_mean_is_made_of_seeds_if_the_file_has_only_those(tmp_path):
    page = tables.ROOT / "docs" / "page.md"
    row = next(line for line in tables.table("maps", page).splitlines() if "[VGG19]" in line)
    assert row.split(" | ")[2] == "0.07"  # of 0.074, 0.065 and 0.075
    assert "(../experiments/vgg19.sh)" in row


def test_an_unknown_run_is_an_error(monkeypatch):
    rows = [tables.Row("x", "vgg19", "NO_SUCH_RUN", "0")]
    monkeypatch.setattr(tables, "read_rows", lambda _: rows)
    with pytest.raises(ValueError, match="vgg19.csv has no figure of 'NO_SUCH_RUN'"):
        tables.table("start", Path("README.md"))
