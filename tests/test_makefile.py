"""The targets of the Makefile, with a script in the place of the interpreter."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


@pytest.fixture
def make(tmp_path):
    """Runs `make`; returns its output and the arguments of each call of Python but `-c`."""
    python, calls = tmp_path / "python", tmp_path / "calls"
    python.write_text(
        f'#!/bin/sh\nif [ "$1" = -c ]; then exec {sys.executable} "$@"; fi\necho "$@" >> {calls}\n'
    )
    python.chmod(0o755)
    stamps = [f"{name}_STAMP={tmp_path / name}" for name in ("RUN", "DEV", "WEB")]
    for name in ("RUN", "DEV", "WEB"):
        (tmp_path / name).touch()

    def run(*argv: str) -> tuple[str, list[str]]:
        command = ["make", *argv, f"BIN={tmp_path}", *stamps]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout, calls.read_text().splitlines() if calls.exists() else []

    return run


def test_serve_serves_the_export_of_a_captioner_that_ships_or_of_a_run(make, tmp_path):
    _, calls = make("serve", "RUN=flickr8k_soft", "ARGS=--port 0")
    assert calls == [
        "-m serving.export_saved_model --run-dir flickr8k_soft",
        "-m serving.local_server captioners/flickr8k_soft/export --port 0",
    ]
    run = tmp_path / "my run"
    run.mkdir()
    _, calls = make("serve", f"RUN={run}")
    assert calls[-1].strip() == f"-m serving.local_server {run}/export"


def test_the_tools_are_installed_again_when_the_page_s_packages_change(make):
    assert "pip install" not in make("-n", "lint")[0]
    assert "-r requirements-dev.txt" in make("-n", "-W", "requirements-web.txt", "lint")[0]
