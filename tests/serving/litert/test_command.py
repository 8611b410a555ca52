"""The command captions photographs in a process that has neither TensorFlow nor Keras."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sat_tf.inference import figures
from serving.litert import load, main

# Everything that the project needs and `serving.litert` does not.
ABSENT = ("tensorflow", "keras", "tf_keras", "tensorflow_probability", "tyro", "grpc", "tqdm")
WITHOUT = f"""
import sys
for name in {ABSENT!r}:
    sys.modules[name] = None  # an import of it fails
from serving.litert import main
status = main(sys.argv[1:])
models = ("sat_tf.layers", "sat_tf.train_step", "sat_tf.captioner")
heavy = [name for name in sys.modules if name.startswith(models)]
sys.exit(status or len(heavy))
"""


@pytest.fixture
def photo(images, tmp_path) -> Path:
    path = tmp_path / "photo.png"
    path.write_bytes(images.files[0])
    return path


def test_it_runs_without_tensorflow(litert_exports, exports, photo, tmp_path):
    out = tmp_path / "figures"
    command = [sys.executable, "-c", WITHOUT, litert_exports("soft"), photo, "--out", out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    caption = exports["soft"].captioner.caption(photo)
    assert done.stdout == f"{photo}: {caption.text}  ({caption.score:.2f})\n"
    with Image.open(out / "photo.png") as figure:
        assert figure.width > 600


def test_figures_are_finer_than_what_the_encoder_saw(litert_exports, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "save_attention_figure", lambda *given, **_: drawn.append(given))
    path = tmp_path / "photo.png"
    Image.effect_noise((500, 600), 90).save(path)
    assert main([str(litert_exports("soft")), str(path), "--out", str(tmp_path / "out")]) == 0
    ((_, shown, *_),) = drawn
    assert shown.shape == (figures.PHOTOGRAPH, figures.PHOTOGRAPH, 3)
    assert np.abs(np.diff(shown[..., 0].astype(float))).mean() > 20  # neighbours are not alike


def test_the_command_caption_takes_an_export_without_tensorflow(litert_exports, photo, tmp_path):
    script = """
import sys
for name in ("tensorflow", "keras", "h5py", "matplotlib", "pandas", "grpc", "tensorboard", "scipy"):
    sys.modules[name] = None  # an import of it fails
from sat_tf.__main__ import main
sys.exit(main(["caption", *sys.argv[1:]]))
"""
    argv = [photo, "--run-dir", litert_exports("soft"), "--out", tmp_path / "out"]
    command = [sys.executable, "-c", script, *argv, "--html", tmp_path / "page.html", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert f'"caption": "{load(litert_exports("soft")).caption(photo).text}"' in done.stdout
    assert (tmp_path / "out" / "photo.png").is_file() and (tmp_path / "page.html").is_file()


def test_an_image_that_cannot_be_read_harms_no_other(litert_exports, photo, tmp_path, capsys):
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no image")
    assert main([str(litert_exports("soft")), str(broken), str(photo)]) == 1
    said = capsys.readouterr()
    assert said.out.startswith(f"{photo}: ") and f"{broken}: Cannot read the image" in said.err
    assert said.err.endswith("1 of 2 images could not be read.\n")


def test_a_folder_that_is_no_export_or_missing_litert_is_one_line(
    photo, tmp_path, capsys, litert_exports, monkeypatch
):
    assert main([str(tmp_path / "none"), str(photo)]) == 2
    assert capsys.readouterr().err.startswith(f"Error: {tmp_path / 'none'} is not a LiteRT export")
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    assert main([str(litert_exports("soft")), str(photo)]) == 2
    assert "pip install ai-edge-litert" in capsys.readouterr().err
