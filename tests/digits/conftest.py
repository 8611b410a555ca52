"""Made-up digits, ten fixed patterns with noise, laid out like MNIST, and a tiny run on them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits import train as training
from digits.config import read_digit_config
from digits.models import DigitModel
from tests.training.conftest import soft_run, tiny, unvalidated  # noqa: F401
from training.run.ownership import check_run_dir

TINY = (
    *("--data.dev_digits", "20", "--fit.batch_size", "16", "--fit.epochs", "2"),
    *("--fit.figures", "2", "--model.filters", "2", "--model.annotation_dim", "4"),
    *("--model.attention_dim", "4", "--model.hidden_dim", "4", "--data.portions", "2"),
)


def made_up(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels: each label has its pattern."""
    patterns = np.random.default_rng(0).integers(0, 200, [10, 28, 28])
    rng = np.random.default_rng(seed)
    labels = rng.permutation(count) % 10
    images = patterns[labels] + rng.integers(0, 50, [count, 28, 28])
    return images.astype(np.uint8), labels.astype(np.uint8)


def write_mnist(folder: Path, **changed: np.ndarray | None) -> Path:
    """A folder with `mnist.npz`, its arrays replaced or, with None, left out."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = dict(zip(("x_train", "y_train"), made_up(68, 1), strict=True))
    arrays |= dict(zip(("x_test", "y_test"), made_up(30, 2), strict=True))
    arrays |= changed
    kept = {name: array for name, array in arrays.items() if array is not None}
    np.savez(folder / "mnist.npz", **kept)
    return folder


def train(
    run_dir: Path, *flags: str, data_dir: Path | None = None, say: Callable[[str], Any] = len
) -> DigitModel:
    """Trains a run without the command; says nothing by default."""
    config = training.parse([*flags]).config
    check_run_dir(run_dir, config, read_digit_config)
    return training.train(config, run_dir, data_dir, say=say)


@pytest.fixture(scope="session")
def mnist(tmp_path_factory) -> Path:
    """A folder of made-up digits."""
    return write_mnist(tmp_path_factory.mktemp("mnist"))


@pytest.fixture(scope="session")
def tiny_digits(mnist) -> tuple[str, ...]:
    """Flags of a run of seconds."""
    return (*TINY, "--data-dir", str(mnist))


@pytest.fixture(scope="session")
def hard_digits_run(tmp_path_factory, tiny_digits) -> Path:
    """Two epochs of hard attention with all its state."""
    run_dir = tmp_path_factory.mktemp("digits") / "run"
    flags = ("--recipe", "digits_queries_hard")
    assert training.main([*flags, *tiny_digits, "--run-dir", str(run_dir)]) == 0
    return run_dir
