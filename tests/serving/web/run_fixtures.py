"""Folders that the page takes for runs and exports."""

from __future__ import annotations

import json
from pathlib import Path

from sat_tf.config import SearchConfig
from sat_tf.lite.captioner import GRAPHS, SETTINGS, VOCABULARY, Settings


def make_run(folder: Path, kind: str = "soft", data: str = "scenes") -> Path:
    """The files by which a run is known."""
    folder.mkdir(parents=True)
    config = {"attention": {"kind": kind}, "data": {"name": data, "language": "de"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocabulary.json").write_text("{}")
    (folder / "best.weights.h5").write_bytes(b"weights")
    return folder


def make_export(folder: Path) -> Path:
    """The files by which an export for LiteRT is known."""
    folder.mkdir(parents=True)
    settings = Settings(288, "crop", (9, 9), SearchConfig(), "float32", {})
    (folder / SETTINGS).write_text(settings.to_json())
    for name in (*GRAPHS, VOCABULARY):
        (folder / name).touch()
    return folder
