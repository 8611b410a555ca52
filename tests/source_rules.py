"""Rules about single source files: lengths, docstrings, private names, paths of machines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

MOST_LINES = 600
MOST_BODY_LINES = 60
_PACKAGES = ("sat_tf", "training", "serving", "benchmarks", "tests")

_QUESTION = re.compile(r"(What|How|Whose|Where|Whether)\b")
_MACHINE = re.compile(r"(?<![\w.$}])/(work|root|Users|home/\w+|tmp/\w+)/")
_DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


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


def questioning_docstrings(source: str) -> list[str]:
    """Returns the docstrings, of attributes too, that begin with a question word."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DEFINITIONS):
            for statement in node.body:
                value = statement.value if isinstance(statement, ast.Expr) else None
                text = value.value if isinstance(value, ast.Constant) else None
                if isinstance(text, str) and _QUESTION.match(text.strip()):
                    found.append(f"line {statement.lineno}: {text.strip().splitlines()[0]}")
    return found


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yields the names bound by imports of our packages, with the names imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in _PACKAGES:
                    yield alias.asname or alias.name.split(".")[0], alias.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in _PACKAGES:
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
            if (
                named
                and node.args
                and ast.unparse(node.args[0]).strip("'").split(".")[0]
                in (
                    *bound,
                    *_PACKAGES,
                )
            ):
                found.append(f"line {node.lineno}: {named[0]}")
    return found


def machine_paths(text: str) -> list[str]:
    """Returns the lines with an absolute path of some machine."""
    lines = text.splitlines()
    return [f"line {n}: {line.strip()}" for n, line in enumerate(lines, 1) if _MACHINE.search(line)]
