"""Rules about imports: who imports whom, no circles. Reads the source and imports nothing."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGES = ("sat_tf", "training", "serving", "benchmarks")

# A part of `sat_tf` may import parts of its own rank and of lower ones.
BASE = ("commands", "compat", "config", "errors", "files", "quiet", "ranges", "run_folder")
BASE += ("dtype_policy", "progress", "serialization", "spark", "vocabulary", "images", "ops")
BASE += ("cache", "captions", "published", "compact_weights")
PARTS = ("layers", "objectives", "search", "figures", "viewer")
RANKS = dict.fromkeys(BASE, 0) | dict.fromkeys(PARTS, 1)
RANKS |= {"models": 2, "digits": 3, "trained_captioner": 3, "runs": 4, "": 5, "__main__": 5}

FORBIDDEN = {
    "sat_tf": ("training", "serving", "benchmarks", "tests"),
    "training": ("serving", "benchmarks", "tests"),
    "serving": ("training", "benchmarks", "tests"),
    "benchmarks": ("tests",),
}

CLIENT = "serving.client"
CLIENT_MAY_REACH = ("sat_tf.commands", "sat_tf.config", "sat_tf.errors", "sat_tf.files")
CLIENT_MAY_REACH += (
    "sat_tf.quiet",
    "sat_tf.vocabulary",
    "sat_tf.images",
    "sat_tf.figures",
    "sat_tf.ranges",
    "sat_tf.serialization",
)
MODEL_LIBRARIES = ("keras", "tf_keras", "tensorflow_probability", "tensorflow.keras")


@dataclass
class Module:
    """The modules that one module imports.

    `anywhere` in its source, when its code `runs` (not for type checkers alone), `at_import`.
    """

    anywhere: set[str] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)
    at_import: set[str] = field(default_factory=set)


def find_modules(root: Path) -> dict[str, Path]:
    """Returns the file of each module of the packages, by dotted name."""
    modules = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _import_nodes(node: ast.AST, typing: bool = False, deferred: bool = False):
    """Yields each node that may import, whether for type checkers alone, and whether deferred."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom | ast.Call):
            yield child, typing, deferred
        later = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _import_nodes(child, typing or _is_type_checking(child), deferred or later)


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
        for node, typing, deferred in _import_nodes(ast.parse(path.read_text(encoding="utf-8"))):
            targets = _targets(node, package, modules)
            module.anywhere.update(targets)
            if not typing:
                module.runs.update(targets)
                if not deferred:
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
            found.append(f"{name} has no place in the order of sat_tf: add it to tests/test_house")
            continue
        for target in sorted(module.anywhere):
            upwards = inside and _within(target, ("sat_tf",)) and target in imports
            if _within(target, FORBIDDEN[package]) or (
                upwards and (_rank(target) or 0) > _rank(name)
            ):
                found.append(f"{name} imports {target}")
    return found


def import_cycle(imports: dict[str, Module]) -> list[str]:
    """Returns the modules of one circle of imports, deferred ones included, or nothing."""
    graph = {name: module.runs & set(imports) - {name} for name, module in imports.items()}
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


def _client_may_reach(name: str) -> bool:
    return name == "sat_tf" or _within(name, CLIENT_MAY_REACH)


def client_trespasses(imports: dict[str, Module]) -> list[str]:
    """Returns a line for each module with model code that the client would load."""
    if CLIENT not in imports:
        return []
    return [
        f"{CLIENT} reaches {name} through {origin}"
        for name, origin in sorted(_reached(imports, CLIENT).items())
        if _within(name, MODEL_LIBRARIES)
        or (_within(name, ("sat_tf",)) and not _client_may_reach(name))
    ]


def missing_init_files(root: Path) -> list[str]:
    """Returns the folders with modules that `setup.py` would leave out."""
    folders = {path.parent for package in PACKAGES for path in (root / package).rglob("*.py")}
    return sorted(str(f.relative_to(root)) for f in folders if not (f / "__init__.py").exists())
