"""Filling feature stores on Spark."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sat_tf.spark import check_spark
from tests.training.small_runs import scenes_encoder, train
from training.extract import main

ROOT = Path(__file__).resolve().parents[2]


def test_a_trained_encoder_has_no_store(capsys):
    assert main(["--encoder.trainable", "True"]) == 2
    assert "expected False: a trained encoder has no feature store" in capsys.readouterr().err
    assert main(["--encoder.trainable", "False", "--fit.precision", "auto"]) == 2
    assert "`--fit.precision`: expected float32 or bfloat16" in capsys.readouterr().err


def test_missing_java_is_told(capsys, monkeypatch):
    pytest.importorskip("pyspark")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    assert main(["--encoder.trainable", "False"]) == 2
    assert "Spark needs Java" in capsys.readouterr().err


@pytest.mark.slow
def test_training_reads_the_stores_that_spark_filled(tmp_path, make_photographs, tiny, unvalidated):
    try:
        check_spark()
    except OSError as error:
        pytest.skip(str(error))
    data_dir = make_photographs(tmp_path / "flickr8k")
    flags = [*tiny, "--recipe", "flickr8k_soft", "--data.min_count", "1"]
    flags += scenes_encoder(tmp_path)
    places = ["--data-dir", str(data_dir), "--cache-dir", str(tmp_path / "cache")]
    command = [sys.executable, "-m", "training.extract", *flags, *places, "--master", "local[2]"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "train: 6 images" in done.stdout and "dev: 3 images" in done.stdout
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.f16")}
    assert len(stamps) == 2
    train(tmp_path / "run", *flags, data_dir=data_dir)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "cache").rglob("*.f16")} == stamps
