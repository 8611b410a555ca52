"""Who may import whom, and how large a file may grow: the rules of CONTRIBUTING.md, enforced.

The checker reads the source and imports nothing. It is itself tested, on small trees that break
each of the rules.
"""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("sat_tf", "training", "serving")

# A module of `sat_tf` may import modules of its own rank and of lower ones.
BASE = ("commands", "config", "files", "ranges", "vocabulary", "images", "image_headers")
BASE += ("estimators", "baselines", "losses", "decoding", "decoding_loop")
BASE += ("glimpse_config", "glimpse_pictures")
BASE += ("pictures", "digit_config", "portion_pictures")
RANKS = dict.fromkeys(BASE, 0) | {"layers": 1, "models": 2, "runs": 3, "": 4}

FORBIDDEN = {
    "sat_tf": ("training", "serving", "benchmarks", "tests"),
    "training": ("serving", "benchmarks", "tests"),
    "serving": ("training", "benchmarks", "tests"),
}

CLIENT = "serving.client"
CLIENT_MAY_REACH = ("sat_tf", "sat_tf.commands", "sat_tf.config", "sat_tf.files")
CLIENT_MAY_REACH += ("sat_tf.vocabulary", "sat_tf.images", "sat_tf.image_headers")
CLIENT_MAY_REACH += ("sat_tf.pictures", "sat_tf.ranges", "serving")
MODEL_LIBRARIES = ("keras", "tf_keras", "tensorflow_probability", "tensorflow.keras")

MOST_LINES = 400
MOST_BYTES = 600_000


@dataclass
class Module:
    """The modules that one module imports, anywhere in it and while it is being imported."""

    anywhere: set[str] = field(default_factory=set)
    at_import: set[str] = field(default_factory=set)


def find_modules(root: Path) -> dict[str, Path]:
    """Returns the file of each module of the three packages, by dotted name."""
    modules = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _import_nodes(node: ast.AST, running: bool = True):
    """Yields each node that may import, and whether it runs when its module is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom | ast.Call):
            yield child, running
        deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _import_nodes(child, running and not deferred and not _is_type_checking(child))


def _targets(node: ast.AST, package: str, modules: dict[str, Path]) -> list[str]:
    """Returns the dotted names that a node imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            kept = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*kept, base] if base else kept)
        named = [f"{base}.{alias.name}" for alias in node.names]
        # `from sat_tf import config` imports a module, `from keras import ops` whatever it is.
        ours = base.split(".")[0] in PACKAGES
        return [name if name in modules or not ours else base for name in named]
    if ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
        literal = node.args[0] if node.args else None
        if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
            return [literal.value]
    return []


def read_imports(modules: dict[str, Path]) -> dict[str, Module]:
    """Returns what each module imports, from its source."""
    imports = {}
    for name, path in modules.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        module = imports[name] = Module()
        for node, running in _import_nodes(ast.parse(path.read_text(encoding="utf-8"))):
            targets = _targets(node, package, modules)
            module.anywhere.update(targets)
            if running:
                module.at_import.update(targets)
    return imports


def _within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _rank(name: str) -> int | None:
    return RANKS.get(name.removeprefix("sat_tf").removeprefix(".").split(".")[0])


def wrong_directions(imports: dict[str, Module]) -> list[str]:
    """Returns a line for each import that goes against the order of packages or layers."""
    found = []
    for name, module in imports.items():
        package = name.split(".")[0]
        inside = package == "sat_tf"
        if inside and _rank(name) is None:
            found.append(
                f"{name} has no place in the order of sat_tf: add it to tests/test_imports"
            )
            continue
        for target in sorted(module.anywhere):
            upwards = inside and _within(target, ("sat_tf",)) and target in imports
            if _within(target, FORBIDDEN[package]) or (
                upwards and (_rank(target) or 0) > _rank(name)
            ):
                found.append(f"{name} imports {target}")
    return found


def import_cycle(imports: dict[str, Module]) -> list[str]:
    """Returns the modules of one circle of imports, or nothing."""
    graph = {name: module.at_import & set(imports) - {name} for name, module in imports.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _reached(imports: dict[str, Module], start: str) -> dict[str, str]:
    """Returns every module that importing and using `start` loads, with the one that loads it."""
    reached: dict[str, str] = {}
    waiting = [(target, start) for target in imports[start].anywhere]
    while waiting:
        name, origin = waiting.pop()
        if name in reached:
            continue
        reached[name] = origin
        parent = name.rpartition(".")[0]
        loaded = imports[name].at_import if name in imports else set()
        waiting += [(target, name) for target in {*loaded, *([parent] if parent else [])}]
    return reached


def client_trespasses(imports: dict[str, Module]) -> list[str]:
    """Returns a line for each module with model code that the client would load."""
    if CLIENT not in imports:
        return []
    return [
        f"{CLIENT} reaches {name} through {origin}"
        for name, origin in sorted(_reached(imports, CLIENT).items())
        if _within(name, MODEL_LIBRARIES)
        or (_within(name, ("sat_tf",)) and name not in CLIENT_MAY_REACH)
    ]


def missing_init_files(root: Path) -> list[str]:
    """Returns the folders with modules that `setup.py` would leave out."""
    folders = {path.parent for package in PACKAGES for path in (root / package).rglob("*.py")}
    return sorted(str(f.relative_to(root)) for f in folders if not (f / "__init__.py").exists())


@pytest.fixture(scope="module")
def project() -> dict[str, Module]:
    """What each module of this repository imports."""
    return read_imports(find_modules(ROOT))


@pytest.fixture(scope="module")
def repository_files() -> list[Path]:
    """The files that git tracks or is about to; none are ignored ones."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git repository: nothing says which files belong to it")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_imports_point_one_way(project):
    assert wrong_directions(project) == []


def test_no_modules_import_each_other_in_a_circle(project):
    assert import_cycle(project) == []


def test_the_client_loads_no_model_code(project):
    assert client_trespasses(project) == []


def test_every_folder_of_modules_is_a_package():
    assert missing_init_files(ROOT) == []


def test_modules_stay_short(repository_files):
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in repository_files
        if path.suffix == ".py"
    }
    assert lengths, "no Python file found"
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_no_large_file_is_tracked(repository_files):
    sizes = {str(path.relative_to(ROOT)): path.stat().st_size for path in repository_files}
    assert {name: size for name, size in sizes.items() if size > MOST_BYTES} == {}


# The checker itself: each tree below breaks one rule, or none.


def imports_of(root: Path, files: dict[str, str]) -> dict[str, Module]:
    """Writes the files and reads their imports."""
    for name, source in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    return read_imports(find_modules(root))


@pytest.mark.parametrize(
    ("file", "source", "complaint"),
    [
        ("sat_tf/config.py", "import training.fit", "sat_tf.config imports training.fit"),
        ("sat_tf/config.py", "from serving import x", "sat_tf.config imports serving"),
        ("training/fit.py", "import serving.export", "training.fit imports serving.export"),
        ("serving/export.py", "def f():\n    import training", "serving.export imports training"),
        ("sat_tf/losses.py", "from sat_tf.layers import a", "sat_tf.losses imports sat_tf.layers"),
        ("sat_tf/losses.py", "from . import runs", "sat_tf.losses imports sat_tf.runs"),
        (
            "sat_tf/layers/a.py",
            "def f():\n    from ..models import captioner",
            "sat_tf.layers.a imports sat_tf.models.captioner",
        ),
        (
            "sat_tf/models/b.py",
            "import importlib\nimportlib.import_module('sat_tf.runs')",
            "sat_tf.models.b imports sat_tf.runs",
        ),
        ("sat_tf/models/b.py", "import sat_tf", "sat_tf.models.b imports sat_tf"),
        ("sat_tf/extra.py", "", "sat_tf.extra has no place"),
    ],
)
def test_the_checker_sees_an_import_the_wrong_way(tmp_path, file, source, complaint):
    tree = dict.fromkeys(
        ("sat_tf/__init__.py", "sat_tf/runs.py", "sat_tf/layers/__init__.py"), ""
    ) | {"sat_tf/models/__init__.py": "", "sat_tf/models/captioner.py": ""}
    (complaints,) = wrong_directions(imports_of(tmp_path, tree | {file: source}))
    assert complaints.startswith(complaint)


def test_the_checker_allows_imports_the_right_way(tmp_path):
    tree = {
        "sat_tf/__init__.py": "def load(p):\n    from sat_tf.runs import load_run\n",
        "sat_tf/runs.py": "from sat_tf.models import captioner\nfrom sat_tf import config",
        "sat_tf/config.py": "import json",
        "sat_tf/models/captioner.py": "from ..layers.attention import A\nimport keras",
        "sat_tf/layers/attention.py": "from sat_tf.config import C",
        "training/fit.py": "import sat_tf\nfrom sat_tf.runs import load_run",
        "serving/export.py": "from sat_tf import load",
    }
    imports = imports_of(tmp_path, tree)
    assert wrong_directions(imports) == []
    assert import_cycle(imports) == []


def test_the_checker_sees_a_circle(tmp_path):
    tree = {"training/a.py": "from training import b", "training/b.py": "from .a import x"}
    assert {"training.a", "training.b"} == set(import_cycle(imports_of(tmp_path, tree)))


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    from training import b",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from training import b",
    ],
)
def test_a_deferred_import_makes_no_circle(tmp_path, source):
    tree = {"training/a.py": source, "training/b.py": "from .a import x"}
    assert import_cycle(imports_of(tmp_path, tree)) == []


@pytest.mark.parametrize(
    ("source", "trespasses"),
    [
        ("import keras", True),
        ("from tensorflow import keras", True),
        ("from sat_tf.layers import encoder", True),
        ("from serving import shared", True),
        ("import grpc\nfrom sat_tf import pictures", False),
    ],
)
def test_the_checker_sees_model_code_in_the_client(tmp_path, source, trespasses):
    tree = {
        "serving/client.py": source,
        "serving/shared.py": "from sat_tf.layers import encoder",
        "sat_tf/__init__.py": "def load():\n    from sat_tf import runs",
        "sat_tf/pictures.py": "import numpy",
        "sat_tf/runs.py": "",
        "sat_tf/layers/encoder.py": "",
    }
    assert bool(client_trespasses(imports_of(tmp_path, tree))) is trespasses


def test_the_checker_sees_a_folder_without_init_file(tmp_path):
    imports_of(tmp_path, {"sat_tf/__init__.py": "", "sat_tf/layers/encoder.py": ""})
    assert missing_init_files(tmp_path) == ["sat_tf/layers"]
