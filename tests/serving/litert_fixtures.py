"""LiteRT exports of the tiny runs, made once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.export import export
from tests.built_once import built_once


@pytest.fixture(scope="session")
def litert_exports(exports, tmp_path_factory) -> Callable[[str], Path]:
    """The LiteRT export of a kind of run in float32, or of the soft one in `float16` or `int8`."""

    @functools.cache
    def made(name: str) -> Path:
        kind, precision = (name, "float32") if name in exports else ("soft", name)
        captioner = exports[kind].captioner
        folder = built_once(
            tmp_path_factory,
            f"litert-{name}",
            lambda folder: export(captioner, folder, None, "litert", precision),
        )
        return folder / "1"

    return made
