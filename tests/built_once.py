"""Folders that several processes of one test session share."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import filelock
import pytest

PARALLEL = "PYTEST_XDIST_WORKER" in os.environ


def built_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], object]) -> Path:
    """Builds a folder in one process; the others wait for it, and get a copy."""
    folder = factory.mktemp(name)
    if not PARALLEL:
        build(folder)
        return folder
    shared = factory.getbasetemp().parent / f"built-{name}"
    with filelock.FileLock(f"{shared}.lock"):
        if shared.exists():
            shutil.copytree(shared, folder, dirs_exist_ok=True)
        else:
            build(folder)
            shutil.copytree(folder, shared)
    return folder
