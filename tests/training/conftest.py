"""Tiny runs, each trained once and read by many tests, and a tiny folder of photographs."""

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.built_once import built_once
from tests.training.small_runs import hide_meteor, meteor_hidden, scenes_encoder, skip_validation
from training.train import main

TINY = (
    *("--data.limit", "12", "--fit.epochs", "1", "--fit.batch_size", "16"),
    *("--decoder.embedding_dim", "8", "--decoder.attention_dim", "8"),
    *("--decoder.hidden_dim", "16", "--search.beam", "2", "--search.max_length", "8"),
    # A figure's search takes a third of such a run.
    *("--fit.figures", "0"),
)
FIGURES = ("--fit.figures", "2")
FINE_TUNED = (
    *("--encoder.trainable_from", "conv4", "--optimizer.encoder_learning_rate", "1e-4"),
    *("--data.mirror", "True", "--data.random_crop", "0.2", "--fit.batch_by", "image"),
)
NAMES = {
    "train": [f"train{n}.jpg" for n in range(6)],
    "dev": [f"dev{n}.jpg" for n in range(3)],
    "test": [f"test{n}.jpg" for n in range(3)],
}
CORRUPT = "train4.jpg"


@dataclass(frozen=True)
class TinyPhotographs:
    """A run on photographs, with its sources."""

    run_dir: Path
    data_dir: Path
    cache_dir: Path
    output: str


@pytest.fixture(scope="session")
def tiny() -> tuple[str, ...]:
    """Flags of a run of seconds."""
    return TINY


@pytest.fixture(scope="session")
def fine_tuned() -> tuple[str, ...]:
    """Flags of an encoder that is fine-tuned at its own rate, on augmented images."""
    return FINE_TUNED


@pytest.fixture
def unvalidated(monkeypatch):
    """Trains without dev scores, as their search takes a third of a tiny run; epochs get better."""
    skip_validation(monkeypatch)


@pytest.fixture(autouse=True)
def _without_meteor(request, monkeypatch):
    """Hides METEOR from every test, unless its file sets `USES_METEOR`.

    Through the test's own `monkeypatch`: two that undo the same name undo it in turn only if they
    were made in turn, and leftovers hide METEOR from all later tests.
    """
    if not getattr(request.module, "USES_METEOR", False):
        hide_meteor(monkeypatch)


def trained(factory: pytest.TempPathFactory, name: str, *flags: str) -> Path:
    def train(folder: Path) -> None:
        places = ("--run-dir", str(folder / "run"), "--cache-dir", str(folder / "cache"))
        with meteor_hidden():
            assert main([*TINY, *places, *flags]) == 0

    return built_once(factory, name, train) / "run"


@pytest.fixture(scope="session")
def soft_run(tmp_path_factory) -> Path:
    """Two epochs of soft attention."""
    return trained(tmp_path_factory, "soft", "--fit.epochs", "2")


@pytest.fixture(scope="session")
def hard_run(tmp_path_factory) -> Path:
    """Two epochs of hard attention with dropout, schedule, baseline and figures, fine-tuned."""
    flags = ("--recipe", "scenes_hard", "--fit.epochs", "2", "--decoder.output_dropout", "0.3")
    return trained(tmp_path_factory, "hard", *flags, *FINE_TUNED, *FIGURES)


@pytest.fixture(scope="session")
def none_run(tmp_path_factory) -> Path:
    """An epoch without attention, with figures."""
    return trained(tmp_path_factory, "none", "--recipe", "scenes_none", *FIGURES)


def write_photographs(folder: Path, splits: tuple[str, ...] = ("train", "dev", "test")) -> Path:
    """A folder laid out like Flickr8k with six, three and three images."""
    images = folder / "Flicker8k_Dataset"
    images.mkdir(parents=True)
    rng = np.random.default_rng(0)
    lines = []
    for split in splits:
        for name in NAMES[split]:
            pixels = rng.integers(0, 256, [60, 80, 3], np.uint8)
            Image.fromarray(pixels).save(images / name)
            # A word that only this split has.
            lines += [f"{name}#{k}\tA {split}word dog runs {'fast ' * k}." for k in range(2)]
        names = "".join(f"{name}\n" for name in NAMES[split])
        (folder / f"Flickr_8k.{split}Images.txt").write_text(names)
    (folder / "Flickr8k.token.txt").write_text("".join(f"{line}\n" for line in lines))
    return folder


@pytest.fixture(scope="session")
def make_photographs():
    """`write_photographs`, for tests that spoil the folder."""
    return write_photographs


@pytest.fixture(scope="session")
def photographs(tmp_path_factory) -> TinyPhotographs:
    """An epoch on stored annotations of photographs and a file that is not an image."""

    def train(folder: Path) -> None:
        data_dir = write_photographs(folder / "flickr8k")
        (data_dir / "Flicker8k_Dataset" / CORRUPT).write_bytes(b"\xff\xd8\xff no image")
        flags = [*TINY, "--recipe", "flickr8k_vgg19_soft", "--data.min_count", "1"]
        flags += [*scenes_encoder(folder), "--data-dir", str(data_dir)]
        flags += ["--run-dir", str(folder / "run"), "--cache-dir", str(folder / "cache")]
        said = io.StringIO()
        with contextlib.redirect_stdout(said), meteor_hidden():
            assert main(flags) == 0
        (folder / "encoder.weights.h5").unlink()
        (folder / "said.txt").write_text(said.getvalue())

    folder = built_once(tmp_path_factory, "photographs", train)
    places = (folder / name for name in ("run", "flickr8k", "cache"))
    return TinyPhotographs(*places, (folder / "said.txt").read_text())
