"""The training command's way to its first step, phase by phase."""

from __future__ import annotations

import json

import pytest

from benchmarks.first_step import Phases, main
from benchmarks.shapes import TOY
from benchmarks.startup import start_training, training_arguments, write_data
from training import inputs, model, train
from training.config import DataConfig
from training.data.sources import load_split
from training.run_state import resume


def test_phases_add_up_even_when_left_by_an_error(monkeypatch):
    monkeypatch.setattr("time.perf_counter", iter([1.0, 3.0, 10.0, 15.0]).__next__)
    phases = Phases()

    def fail():
        raise OSError

    for _ in range(2):
        with pytest.raises(OSError):
            phases.wrap(fail, "phase")()
    assert phases.seconds == {"phase": 7.0}


def test_the_data_is_a_folder_of_ones_own(tmp_path):
    write_data(TOY, 20, tmp_path / "data")
    train, dev = (
        load_split(DataConfig("folder"), name, tmp_path / "data") for name in ("train", "dev")
    )
    assert (len(train), len(dev)) == (20, 2)
    assert all(len(example.captions) == 5 for example in train.examples)
    assert not train.skipped


def test_the_command_ends_after_its_first_step(tmp_path, monkeypatch):
    patched = [(inputs, "load_data"), (model, "new_model"), (inputs, "open_inputs")]
    for module, name in [*patched, (resume, "train_epochs"), (train, "train")]:
        monkeypatch.setattr(module, name, getattr(module, name))  # Undone after the test.
    write_data(TOY, 20, tmp_path / "data")
    out, run_dir = tmp_path / "phases.json", tmp_path / "run"
    main(out, training_arguments(TOY, tmp_path, run_dir))
    phases = json.loads(out.read_text())["phases"]
    expected = {"captions", "model", "feature store", "trace and first step"}
    assert expected < phases.keys() and all(phases[name] > 0 for name in expected)
    assert not (run_dir / "best.weights.h5").exists()


def test_a_command_that_fails_says_why(tmp_path):
    with pytest.raises(OSError, match=r"did not reach its first step:\n(.*\n)*.*data"):
        start_training(TOY, tmp_path)
