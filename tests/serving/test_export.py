"""Versions appear whole or not at all, hold one copy of the weights, and nothing that runs."""

import pickle
import pickletools

import numpy as np
import pytest

import sat_tf
from serving.export_saved_model import export, main
from tests.serving.export_fixtures import load_call, write_run

FILES = {
    "saved_model.pb",
    "fingerprint.pb",
    "variables/variables.index",
    "variables/variables.data-00000-of-00001",
    "assets.extra/MODEL_CARD.md",
    "assets.extra/tf_serving_warmup_requests",
}


def files_of(version):
    found = (path for path in version.rglob("*") if path.is_file())
    return {path.relative_to(version).as_posix(): path for path in found}


def is_pickle(content: bytes) -> bool:
    try:
        return bool(list(pickletools.genops(content)))
    except Exception:  # whatever is no pickle
        return False


def test_it_holds_known_files_the_weights_once_and_no_pickle(exports):
    found, model = files_of(exports["soft"].version), exports["soft"].captioner.model
    weights = model.encoder.count_params() + model.decoder.count_params()
    stored = found["variables/variables.data-00000-of-00001"].stat().st_size
    # Beside the numbers, the names of the checkpoint's objects.
    assert 4 * weights <= stored < 4 * weights + 20_000
    assert set(found) == FILES and is_pickle(pickle.dumps(FILES))
    assert [name for name, path in found.items() if is_pickle(path.read_bytes())] == []


def test_the_command_exports_the_next_version_with_its_card(tmp_path, capsys):
    run_dir = write_run(tmp_path / "run", {"kind": "hard"})
    (run_dir / "export" / "7").mkdir(parents=True)
    (run_dir / "export" / "not_a_version").mkdir()
    argv = ["--beam", "2", "--length-power", "0.5", "--max-length", "4", "--inference", "argmax"]
    assert main(["--run-dir", str(run_dir), *argv]) == 0
    said = capsys.readouterr().out
    version = run_dir / "export" / "8"
    assert set(files_of(version)) == FILES
    card = (version / "assets.extra" / "MODEL_CARD.md").read_text()
    for fact in ("hard, location by argmax", "4 words", "log p / length^0.5", "32 x 32 pixels"):
        assert fact in card
    assert "[B, 2, 5]" in card and str(version) in said


def test_a_setting_that_cannot_be_is_one_error_and_no_version(tmp_path, capsys):
    run_dir = write_run(tmp_path / "run", {"kind": "hard", "inference": "sample"})
    assert main(["--run-dir", str(run_dir)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("Error: ") and "`inference`: expected expectation or argmax" in said
    assert "Traceback" not in said and not any((run_dir / "export").glob("*"))


@pytest.mark.slow
def test_a_fine_tuned_backbone_is_exported_too(tmp_path, images):
    encoder = {"name": "mobilenet_v2", "image_size": 64, "resize": "squash"}
    encoder |= {"trainable": True, "trainable_from": "block_16_expand"}
    captioner = sat_tf.load(write_run(tmp_path / "run", {"kind": "soft"}, encoder=encoder))
    call = load_call(export(captioner, tmp_path / "out"))
    answer = call("serving_default", np.array(images.files[:2], object))
    for row, file in enumerate(images.files[:2]):
        alone = captioner.caption(file)
        assert answer["captions"][row, 0].decode() == alone.text
        assert answer["scores"][row, 0] == pytest.approx(alone.score, abs=1e-4)
        attention = answer["attention"][row, : len(alone.words)]
        np.testing.assert_allclose(attention, alone.alpha, atol=1e-4)
