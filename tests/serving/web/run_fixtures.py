"""Folders that the page takes for runs and exports."""

from __future__ import annotations

import json
from pathlib import Path


def make_run(folder: Path, kind: str = "soft", data: str = "scenes") -> Path:
    """The files by which a run is known."""
    folder.mkdir(parents=True)
    config = {"attention": {"kind": kind}, "data": {"name": data, "language": "de"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocabulary.json").write_text("{}")
    (folder / "best.weights.h5").write_bytes(b"weights")
    return folder


def make_export(folder: Path) -> Path:
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "saved_model.pb").touch()
    return folder
