"""Tiny runs of each kind of attention."""

import shutil
from pathlib import Path

import pytest

import sat_tf
from sat_tf.inference.captioning import TrainedCaptioner
from tests.sat_tf.tiny_runs import write_run


@pytest.fixture(scope="session")
def run_of(tmp_path_factory) -> dict[str, Path]:
    """Kind of attention -> the folder of a run."""
    folder = tmp_path_factory.mktemp("runs")
    return {kind: write_run(folder / kind, kind) for kind in ("soft", "hard", "none")}


@pytest.fixture(scope="session")
def loaded(run_of) -> dict[str, TrainedCaptioner]:
    """Kind of attention -> the captioner."""
    return {kind: sat_tf.load(path) for kind, path in run_of.items()}


@pytest.fixture(scope="session")
def light(run_of, loaded, tmp_path_factory) -> dict[str, Path]:
    """Copies of the runs that attend, with their graphs in float32."""
    from sat_tf.inference.graphs import write_graphs

    folder, found = tmp_path_factory.mktemp("light"), {}
    for kind in ("soft", "hard"):
        found[kind] = shutil.copytree(run_of[kind], folder / kind)
        write_graphs(found[kind] / "graphs", loaded[kind])
    return found
