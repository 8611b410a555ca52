"""Filling feature stores on Spark."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sat_tf.spark import check_spark
from tests.training.small_runs import scenes_encoder
from training.extract import main
from training.train import main as train

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
def test_training_reads_the_stores_that_spark_filled(tmp_path, make_photographs, tiny):
    try:
        check_spark()
    except OSError as error:
        pytest.skip(str(error))
    data_dir = make_photographs(tmp_path / "flickr8k")
    flags = [*tiny, "--recipe", "flickr8k_soft", "--data.min_count", "1"]
    flags += [*scenes_encoder(tmp_path), "--data-dir", str(data_dir)]
    flags += ["--cache-dir", str(tmp_path / "cache")]
    command = [sys.executable, "-m", "training.extract", *flags, "--master", "local[2]"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "train: 6 images" in done.stdout and "dev: 3 images" in done.stdout
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.f16")}
    assert len(stamps) == 2
    assert train([*flags, "--run-dir", str(tmp_path / "run")]) == 0
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "cache").rglob("*.f16")} == stamps
