"""Checkpoints come back whole, or not at all."""

import json

import keras
import numpy as np
import pytest

from sat_tf.captioner import Captioner, configs
from sat_tf.inference import load as runs
from sat_tf.util.fields import from_dict
from tests.full_disk import full_disk
from training.run.checkpoints import VERSION, Checkpoints, Progress


def make_model(kind: str = "hard", hidden_dim: int = 6) -> Captioner:
    values = {
        "encoder": {"name": "scenes_cnn", "image_size": 16, "trainable": True},
        "decoder": {"embedding_dim": 4, "attention_dim": 5, "hidden_dim": hidden_dim},
        "attention": {"kind": kind},
    }
    model = Captioner(from_dict(configs.CaptionerConfig, values), 7)
    model.compile(optimizer=keras.optimizers.AdamW(1e-2), run_eagerly=True)
    return model


@pytest.fixture(scope="module")
def plain() -> Captioner:
    """A model that no test trains."""
    return make_model("none")


@pytest.fixture
def saved(plain, tmp_path) -> Checkpoints:
    """Checkpoints after the first epoch."""
    checkpoints = Checkpoints(tmp_path, plain)
    checkpoints.save(Progress(1))
    return checkpoints


def everything(model: Captioner) -> list[np.ndarray]:
    return [np.asarray(v) for v in (*model.variables, *model.optimizer.variables)]


def step(model: Captioner) -> None:
    """One step, so that slots, counter and baseline have new values."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, [2, 16, 16, 3], np.uint8)
    tokens = np.array([[1, 4, 5, 2], [1, 6, 2, 0]], np.int32)
    model.fit({"images": images, "tokens": tokens}, epochs=1, verbose=0)


def test_weights_optimiser_and_baseline_come_back(tmp_path):
    model = make_model()
    checkpoints = Checkpoints(tmp_path, model)
    step(model)
    progress = Progress(3, 2, 41.5, 1, False, 12.0)
    checkpoints.save(progress)
    other = make_model()
    restored = Checkpoints(tmp_path, other).restore()
    assert restored == progress
    assert float(other.baseline.value) == float(model.baseline.value) != 0.0
    assert int(other.optimizer.iterations) == 1
    for mine, theirs in zip(everything(model), everything(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_one_within_an_epoch_replaces_the_one_before_and_is_replaced(plain, tmp_path):
    checkpoints = Checkpoints(tmp_path, plain)
    for progress in (Progress(1), Progress(1, step=2), Progress(1, step=10), Progress(2)):
        checkpoints.save(progress)
        (path,) = tmp_path.iterdir()
        assert checkpoints.restore() == progress
        assert path.name.startswith(f"epoch-00{progress.epoch}")
        assert path.name.endswith(f"-step-{progress.step:06d}") is bool(progress.step)


def test_a_half_written_one_is_ignored_and_removed_by_the_next(saved, tmp_path):
    half = tmp_path / ".writing-epoch-002"
    half.mkdir()
    (half / "variables.index").write_bytes(b"half")
    assert saved.restore().epoch == 1
    saved.save(Progress(2))
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-002"]


def test_a_full_disk_is_a_clear_error_and_leaves_the_one_before(saved, tmp_path):
    with full_disk(), pytest.raises(runs.RunError, match="epoch-002.*cannot be written") as error:
        saved.save(Progress(2))
    assert "free some space and start the same command again" in str(error.value)
    assert "[Op:" not in str(error.value) and "{{" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-001"]
    assert saved.restore().epoch == 1
    saved.save(Progress(2))


@pytest.mark.parametrize("spoil", [lambda b: b[: len(b) // 2], lambda b: bytes(len(b)), None])
def test_one_whose_values_are_damaged_is_a_clear_error_and_stays(saved, tmp_path, spoil):
    (data,) = (tmp_path / "epoch-001").glob("variables.data*")
    if spoil is None:
        data.unlink()
    else:
        data.write_bytes(spoil(data.read_bytes()))
    with pytest.raises(runs.RunError, match="epoch-001 is damaged.*another folder with"):
        saved.restore()
    assert (tmp_path / "epoch-001").exists()


def test_one_of_another_version_is_a_clear_error(saved, tmp_path):
    state = tmp_path / "epoch-001" / "state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "version": 99}))
    with pytest.raises(runs.RunError, match=f"epoch-001.*expected version {VERSION}, got 99"):
        saved.restore()


@pytest.mark.parametrize(
    ("saved", "present"),
    [({"hidden_dim": 6}, {"hidden_dim": 9}), ({"kind": "none"}, {"kind": "soft"})],
)
def test_one_of_another_model_is_a_clear_error(tmp_path, saved, present):
    Checkpoints(tmp_path, make_model(**saved)).save(Progress(1))
    with pytest.raises(runs.RunError, match="epoch-001"):
        Checkpoints(tmp_path, make_model(**present)).restore()
