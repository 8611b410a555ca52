"""Tiny runs of each kind of attention."""

from pathlib import Path

import pytest

import sat_tf
from sat_tf.inference import load as runs
from sat_tf.inference.captioning import TrainedCaptioner
from tests.sat_tf.tiny_runs import write_run


@pytest.fixture(scope="session")
def run_of(tmp_path_factory) -> dict[str, Path]:
    """The folder of a run by its kind of attention."""
    folder = tmp_path_factory.mktemp("runs")
    return {kind: write_run(folder / kind, kind) for kind in ("soft", "hard", "none")}


@pytest.fixture(scope="session")
def loaded(run_of) -> dict[str, TrainedCaptioner]:
    """The captioner by its kind of attention."""
    return {kind: sat_tf.load(path) for kind, path in run_of.items()}


@pytest.fixture(scope="session")
def graphs_made(run_of, tmp_path_factory) -> Path:
    """A cache with the graphs of the runs that attend."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SAT_TF_CACHE", str(folder))
        assert None not in runs.make_graphs(run_of["soft"], run_of["hard"])
    return folder
