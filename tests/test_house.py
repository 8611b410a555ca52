"""Rules of the house (CONTRIBUTING.md) for the whole repository; `make lint` checks the imports."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import source_rules

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("sat_tf", "training", "serving", "benchmarks")
MOST_BYTES = 600_000
RULES = ("tests/source_rules.py",)  # it spells out what it forbids


@pytest.fixture(scope="module")
def files() -> dict[str, Path]:
    """The files that git tracks or is about to, by their names."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git repository, so the files that belong to it are unknown")
    names = [name for name in listed.stdout.split("\0") if (ROOT / name).is_file()]
    return {name: ROOT / name for name in names}


@pytest.fixture(scope="module")
def sources(files) -> dict[str, str]:
    """The text of each Python file."""
    found = {name: path for name, path in files.items() if path.suffix == ".py"}
    assert found, "no Python file found"
    return {name: path.read_text(encoding="utf-8") for name, path in found.items()}


def broken(rule: Callable[[str], object], texts: dict[str, str]) -> dict[str, object]:
    """Returns what a rule finds, for the files in which it finds something."""
    found = {name: rule(text) for name, text in texts.items() if name not in RULES}
    return {name: complaints for name, complaints in found.items() if complaints}


def test_every_folder_of_modules_is_a_package():
    # Otherwise `setup.py` leaves it out.
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_modules_stay_short(sources):
    lines = {name: len(text.splitlines()) for name, text in sources.items()}
    assert {n: count for n, count in lines.items() if count > source_rules.MOST_LINES} == {}


def test_functions_stay_short(sources):
    assert broken(source_rules.long_functions, sources) == {}


def test_docstrings_begin_with_a_verb_or_a_noun(sources):
    assert broken(source_rules.questioning_docstrings, sources) == {}


def test_tests_use_public_names(sources):
    tests = {name: text for name, text in sources.items() if name.startswith("tests/")}
    assert broken(source_rules.private_names, tests) == {}


def test_no_file_names_a_path_of_some_machine(files):
    texts = {}
    for name, path in files.items():
        try:
            texts[name] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # an image or weights
    assert broken(source_rules.machine_paths, texts) == {}


def test_no_large_file_is_tracked(files):
    sizes = {name: path.stat().st_size for name, path in files.items()}
    large = [name for name, size in sizes.items() if size > MOST_BYTES]
    # One encoder and three decoders ship; `test_shipped.py` bounds their size.
    weights = [n for n in large if n.startswith("sat_tf/captioners/") and n.endswith(".npz")]
    assert large == weights and len(weights) <= 4
