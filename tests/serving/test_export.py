"""Versions appear whole or not at all, hold one copy of the weights, and nothing that runs."""

from __future__ import annotations

import os
import pickle
import pickletools

import numpy as np
import pytest
import tensorflow as tf

import sat_tf
from serving import export as export_module
from serving import versions
from serving.export import export, main
from tests.full_disk import full_disk

EXPORTED = ("soft", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("hard", "none")))
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


def test_the_first_version_is_1_and_others_may_read_it(exports):
    version = exports["soft"].version
    assert version.name == "1" and [path.name for path in version.parent.iterdir()] == ["1"]
    assert modes_of(version) == {"folder": {0o755}, "file": {0o644}}


def modes_of(version) -> dict[str, set[int]]:
    """The permissions of a folder and all below it."""
    modes = {"folder": set(), "file": set()}
    for path in (version, *version.rglob("*")):
        modes["folder" if path.is_dir() else "file"].add(path.stat().st_mode & 0o777)
    return modes


@pytest.fixture
def draft(tmp_path):
    """A version that nobody else may read, all but published, in `OUT/.writing-x`."""
    folder = tmp_path / "out" / ".writing-x"
    before = os.umask(0o077)
    (folder / "variables").mkdir(parents=True)
    for name in ("saved_model.pb", "variables/variables.index"):
        (folder / name).write_bytes(b"content")
    os.umask(before)
    return folder


def test_others_may_read_all_of_it_whatever_the_umask(draft):
    assert modes_of(draft) == {"folder": {0o700}, "file": {0o600}}
    version = versions.publish_version(draft, draft.parent)
    assert modes_of(version) == {"folder": {0o755}, "file": {0o644}}


def test_a_version_is_on_the_disk_before_it_has_its_number(draft, monkeypatch):
    synced = []
    monkeypatch.setattr(versions, "sync", lambda path: synced.append((path, path.exists())))
    inside = {draft, *draft.rglob("*")}
    version = versions.publish_version(draft, draft.parent)
    assert {path for path, _ in synced[:-1]} == inside and all(there for _, there in synced)
    assert synced[-1][0] == version.parent
    assert len(inside) == 4 and not draft.exists()


@pytest.mark.parametrize("kind", EXPORTED)
def test_weights_are_stored_once(exports, kind):
    model = exports[kind].captioner.model
    weights = model.encoder.count_params() + model.decoder.count_params()
    stored = files_of(exports[kind].version)["variables/variables.data-00000-of-00001"]
    # Beside the numbers, the names of the checkpoint's objects.
    assert 4 * weights <= stored.stat().st_size < 4 * weights + 20_000


def is_pickle(content: bytes) -> bool:
    try:
        return bool(list(pickletools.genops(content)))
    except Exception:  # whatever is no pickle
        return False


def test_it_holds_known_files_and_no_pickle(exports):
    found = files_of(exports["soft"].version)
    assert set(found) == FILES and is_pickle(pickle.dumps(FILES))
    assert [name for name, path in found.items() if is_pickle(path.read_bytes())] == []


def test_the_command_exports_the_next_version_and_prints_what_is_inside(make_run, tmp_path, capsys):
    run_dir = make_run(tmp_path / "run", {"kind": "hard"})
    (run_dir / "export" / "7").mkdir(parents=True)
    (run_dir / "export" / "not_a_version").mkdir()
    argv = ["--beam", "2", "--length-power", "0.5", "--max-length", "4", "--inference", "argmax"]
    assert main(["--run-dir", str(run_dir), *argv]) == 0
    said = capsys.readouterr().out
    version = run_dir / "export" / "8"
    assert set(files_of(version)) == FILES
    card = (version / "assets.extra" / "MODEL_CARD.md").read_text()
    for fact in ("hard, location by argmax", "4 words", "log p / length^0.5", "32 x 32 pixels"):
        assert fact in said and fact in card
    assert "[B, 2, 5]" in card and str(version) in said


@pytest.fixture
def stopped(monkeypatch):
    """Stops every export once half of it is written."""

    def save(_, folder):
        (folder / "saved_model.pb").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(export_module, "save_signatures", save)


def test_an_export_that_is_stopped_leaves_nothing(exports, tmp_path, stopped):
    with pytest.raises(KeyboardInterrupt):
        export(exports["none"].captioner, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


class Megabyte(tf.Module):
    """Weights of that size, whose writing takes no tracing."""

    def __init__(self):
        super().__init__()
        self.weights = tf.Variable(tf.zeros([2**18]))


@pytest.mark.parametrize("part", ["variables", "warm-up"])
def test_a_full_disk_is_a_clear_error_and_leaves_nothing(exports, tmp_path, monkeypatch, part):
    def save(_, folder):
        if part == "variables":  # they come first and take more than the warm-up
            tf.saved_model.save(Megabyte(), str(folder))
        return {}

    monkeypatch.setattr(export_module, "save_signatures", save)
    captioner = exports["none"].captioner  # made while there is room
    message = f"cannot be written to {tmp_path / 'out'}: .*too large"
    with full_disk(2048), pytest.raises(OSError, match=message):
        export(captioner, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_an_export_that_is_killed_leaves_no_version(exports, tmp_path, stopped, monkeypatch):
    out = tmp_path / "out"
    # Nothing tidies up after a kill.
    monkeypatch.setattr(versions.shutil, "rmtree", lambda *_, **__: None)
    with pytest.raises(KeyboardInterrupt):
        export(exports["none"].captioner, out)
    (left,) = out.iterdir()
    assert not left.name.isdecimal() and (left / "saved_model.pb").exists()
    draft = out / ".writing-next"
    draft.mkdir()
    assert versions.publish_version(draft, out) == out / "1"


def test_two_exports_at_once_get_a_number_each(tmp_path, monkeypatch):
    drafts = [tmp_path / ".writing-a", tmp_path / ".writing-b"]
    for draft in drafts:
        draft.mkdir()
        (draft / "saved_model.pb").touch()
    rename = versions.Path.rename

    def late(draft, version):
        # The other export takes the number between the look and the rename.
        monkeypatch.setattr(versions.Path, "rename", rename)
        rename(drafts[1], version)
        return rename(draft, version)

    monkeypatch.setattr(versions.Path, "rename", late)
    assert versions.publish_version(drafts[0], tmp_path) == tmp_path / "2"


@pytest.mark.parametrize(
    ("attention", "argv", "says"),
    [
        ({"kind": "soft"}, ["--inference", "argmax"], "(`--inference`): expected none for soft"),
        ({"kind": "none"}, ["--beam", "0"], "`--beam`: expected a number of at least 1"),
        (
            {"kind": "none"},
            ["--max-length", "0"],
            "`--max-length`: expected a number",
        ),
        (
            {"kind": "none"},
            ["--length-power", "-1"],
            "`--length-power`: expected",
        ),
        (
            {"kind": "hard", "inference": "sample"},
            [],
            "`inference`: expected expectation or argmax",
        ),
    ],
)
def test_a_setting_that_cannot_be_is_one_error_and_no_version(
    make_run, tmp_path, capsys, attention, argv, says
):
    run_dir = make_run(tmp_path / "run", attention)
    assert main(["--run-dir", str(run_dir), *argv]) == 2
    said = capsys.readouterr().err
    assert said.startswith("Error: ") and says in said and "Traceback" not in said
    assert not any((run_dir / "export").glob("*"))


@pytest.mark.slow
def test_a_fine_tuned_network_of_keras_applications_is_exported_too(
    make_run, make_request, ask, tmp_path, images
):
    encoder = {"name": "mobilenet_v2", "image_size": 64, "resize": "squash"}
    encoder |= {"trainable": True, "trainable_from": "block_16_expand"}
    captioner = sat_tf.load(make_run(tmp_path / "run", {"kind": "soft"}, encoder=encoder))
    version = export(captioner, tmp_path / "out")
    call = make_request("serving_default", images.files[:2])
    answer = ask({"made": (version, {"call": call})})["made"]["calls"]["call"]
    for row, file in enumerate(images.files[:2]):
        alone = captioner.captions([file])[0]
        assert answer["captions"][row][0] == alone.text
        assert answer["scores"][row][0] == pytest.approx(alone.score, abs=1e-4)
        attention = np.array(answer["attention"][row])[: len(alone.words)]
        np.testing.assert_allclose(attention, alone.alpha, atol=1e-4)
