"""Rules of the house (CONTRIBUTING.md) for the whole repository; `make lint` checks the imports."""

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("sat_tf", "training", "serving", "digits", "benchmarks")
MOST_BYTES = 600_000
RULES = ("tests/test_house.py",)  # it spells out what it forbids
MOST_LINES = 600
MOST_BODY_LINES = 60
OWN = (*PACKAGES, "tests")
COMMANDS = {  # and what decides or reads the configuration for them
    *(f"training/{name}.py" for name in ("train", "distill", "publish", "inspect")),
    *(f"training/run/{n}.py" for n in ("build", "config", "decide", "recipes")),
    "training/evaluation/evaluation.py",
}

_MACHINE = re.compile(r"(?<![\w.$}])/(work|root|Users|home/\w+|tmp/\w+)/")


def long_functions(source: str) -> dict[str, int]:
    """Returns the functions whose body, without docstring, is too long, and its lines."""
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            if lines > MOST_BODY_LINES:
                found[f"{node.name} (line {node.lineno})"] = lines
    return found


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yields the names bound by imports of our packages, with the names imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in OWN:
                    yield alias.asname or alias.name.split(".")[0], alias.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OWN:
            for alias in node.names:
                yield alias.asname or alias.name, alias.name


def private_names(source: str) -> list[str]:
    """Returns the private names of our modules and classes that a test reaches for.

    Imports, attributes of names that were imported, and names given to `setattr` and the like.
    """
    tree = ast.parse(source)
    bound = dict(_imports(tree))
    found = [f"import of {name}" for name in bound.values() if _is_private(name)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            owner = ast.unparse(node.value)
            if owner.split(".")[0] in bound:
                found.append(f"line {node.lineno}: {owner}.{node.attr}")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("attr", "object")):
            texts = [a.value for a in node.args if isinstance(a, ast.Constant)]
            named = [t for t in texts if isinstance(t, str) and _is_private(t.split(".")[-1])]
            owner = ast.unparse(node.args[0]).strip("'") if node.args else ""
            if named and owner.split(".")[0] in (*bound, *OWN):
                found.append(f"line {node.lineno}: {named[0]}")
    return found


def machine_paths(text: str) -> list[str]:
    """Returns the lines with an absolute path of some machine."""
    lines = text.splitlines()
    return [f"line {n}: {line.strip()}" for n, line in enumerate(lines, 1) if _MACHINE.search(line)]


@pytest.fixture(scope="module")
def files() -> dict[str, Path]:
    """The files that git tracks, by their names."""
    command = ["git", "ls-files", "--cached", "-z"]
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
    assert {n: count for n, count in lines.items() if count > MOST_LINES} == {}


def test_functions_stay_short(sources):
    assert broken(long_functions, sources) == {}


def test_only_commands_name_a_run_s_whole_configuration(sources):
    # `digits` has its own; an import for type checkers alone is caught here, too.
    named = {n for n, text in sources.items() if re.search(r"\bRunConfig\b", text)}
    below = {n for n in named - COMMANDS if n.startswith(("sat_tf/", "training/", "serving/"))}
    assert below == set() and named >= COMMANDS


def test_tests_use_public_names(sources):
    tests = {name: text for name, text in sources.items() if name.startswith("tests/")}
    assert broken(private_names, tests) == {}


def test_no_file_names_a_path_of_some_machine(files):
    texts = {}
    for name, path in files.items():
        try:
            texts[name] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # an image or weights
    assert broken(machine_paths, texts) == {}


def test_no_large_file_is_tracked(files):
    sizes = {name: path.stat().st_size for name, path in files.items()}
    large = [name for name, size in sizes.items() if size > MOST_BYTES]
    # One encoder with its graph and four decoders; `test_published.py` bounds their size.
    weights = [n for n in large if n.startswith("sat_tf/captioners/") and n.endswith(".npz")]
    assert large == weights and len(weights) <= 6
