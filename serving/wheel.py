"""A wheel whose captioners caption without TensorFlow: `make wheel`, in a checkout.

In place of weights the captioners that ship are exports for LiteRT, of the graphs in int8 that a
checkout captions with. What needs the weights themselves (evaluation, training on, export) takes a
checkout.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from sat_tf.trained import published
from sat_tf.trained.limits import Limits, read_limits
from sat_tf.trained.lite.captioner import SETTINGS, VOCABULARY, limits_files, read_settings
from sat_tf.trained.runs import make_graphs
from sat_tf.util.commands import exit_status, parse_flags
from sat_tf.util.errors import invalid_value
from sat_tf.util.files import write_all

ROOT = Path(__file__).resolve().parents[1]
TREE = ROOT / "build" / "wheel"
PACKAGES = ("sat_tf", "training", "serving", "digits")
_FILES = ("setup.py", "pyproject.toml", "README.md", "LICENSE")


@dataclass(frozen=True)
class Arguments:
    """Build a wheel whose captioners need no TensorFlow."""

    out: Path = Path("dist")
    """Folder of the wheel."""
    captioners: tuple[str, ...] = tuple(published.names())
    """Captioners in it; without a name after it, none."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return exit_status(lambda: run(parse_flags(Arguments, argv, "serving.wheel")))


def run(arguments: Arguments) -> None:
    """Builds the wheel."""
    if not (ROOT / "setup.py").is_file():
        raise ValueError(f"A wheel is built in a checkout, and {ROOT} is not one.")
    unknown = set(arguments.captioners) - set(published.names())
    if unknown:
        raise invalid_value("captioners", " ".join(published.names()), " ".join(unknown))
    out, tree = arguments.out, TREE
    shutil.rmtree(tree, ignore_errors=True)
    copy_sources(tree)
    graphs = dict(zip(arguments.captioners, make_graphs(*arguments.captioners), strict=True))
    for name in published.names():
        folder = tree / "sat_tf" / "captioners" / name
        if name in graphs:
            put_graphs(folder, graphs[name], read_limits(published.locate(name), None))
        else:
            shutil.rmtree(folder)
    out.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(out.absolute()), str(tree)], check=True)
    shutil.rmtree(tree)
    wheel = max(out.glob("sat_tf-*.whl"), key=lambda path: path.stat().st_mtime)
    print(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB. pip install '{wheel}[web]'")


def copy_sources(tree: Path) -> None:
    """Copies what a wheel is built of, without the weights of captioners."""
    tree.mkdir(parents=True)
    weights = ("encoder*.npz", "decoder.npz", "familiarity-*.json", "training_images-*.json")
    ignored = shutil.ignore_patterns("__pycache__", *weights)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / package, ignore=ignored)
    for path in (*(ROOT / name for name in _FILES), *ROOT.glob("requirements*.txt")):
        shutil.copyfile(path, tree / path.name)


def put_graphs(captioner: Path, graphs: Path, limits: Limits) -> None:
    """Makes the folder of a captioner without weights an export, whose encoder lies beside it.

    Args:
        captioner: The folder.
        graphs: Those of the captioner in the cache.
        limits: What it knows of its limits.
    """
    settings = read_settings(graphs)
    files = (*settings.files(graphs).values(), graphs / SETTINGS, graphs / VOCABULARY)
    for path in files:
        beside = path.name == settings.encoder
        shutil.copyfile(path, (captioner.parent if beside else captioner) / path.name)
    write_all(limits_files(captioner, limits))


if __name__ == "__main__":
    sys.exit(main())
