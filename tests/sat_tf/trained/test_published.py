"""Published models: found by name, checked when loaded, downloaded from a Hub; those that ship."""

import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import sat_tf
from sat_tf.errors import RunError
from sat_tf.trained import published
from tests.sat_tf.tiny_runs import PIXELS, contents

NAMES = ["flickr8k_hard", "flickr8k_none", "flickr8k_soft"]
SAMPLE = Path(__file__).parents[3] / "serving" / "web" / "samples" / "cat.jpg"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def soft(run_of, loaded, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "soft"
    published.write(folder, contents(run_of["soft"], loaded["soft"]))
    return folder


@pytest.fixture
def copy(soft, tmp_path) -> Path:
    return shutil.copytree(soft, tmp_path / "copy")


@pytest.fixture
def shipped(soft, monkeypatch) -> None:
    monkeypatch.setattr(published, "SHIPPED", soft.parent)


def test_a_published_captioner_says_what_its_run_says(soft, loaded):
    found, expected = sat_tf.load(soft).caption(PIXELS), loaded["soft"].caption(PIXELS)
    assert found.text == expected.text
    assert found.score == pytest.approx(expected.score, abs=0.05)
    assert found.alpha == pytest.approx(expected.alpha, abs=0.02)


def test_captioners_side_by_side_share_an_encoder(run_of, loaded, tmp_path):
    for kind in ("soft", "none"):
        files = contents(run_of["soft"], loaded["soft"])
        published.write(tmp_path / kind, files, share_encoder=True)
    assert len(list(tmp_path.glob("encoder-*.npz"))) == 1
    assert not list(tmp_path.glob("*/encoder.npz"))
    files = published.checked_files(tmp_path / "none")
    assert files["encoder.npz"].parent == tmp_path and len(files) == 4


def test_one_that_ships_is_found_by_name_unless_a_folder_is(shipped, soft, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert published.names() == ["soft"] and published.locate("soft") == soft
    assert published.output_dir("soft") == Path("captioners/soft")
    with pytest.raises(RunError, match="of that name ships: did you mean soft"):
        published.locate("sofd")
    (tmp_path / "soft").mkdir()
    assert published.locate("soft") == published.output_dir("soft") == Path("soft")


@pytest.mark.parametrize("name", ["decoder.npz", "encoder.npz", "config.json", "vocabulary.json"])
def test_a_file_that_was_changed_is_an_error(copy, name):
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(RunError, match=f"{name} is damaged or was changed: expected the SHA-256"):
        sat_tf.load(copy)


def test_a_manifest_that_is_none_and_a_missing_file_are_errors(copy):
    path = copy / published.MANIFEST
    written = json.loads(path.read_text())
    for text, says in (
        ("{", "Cannot read .*captioner.json"),
        ('{"format": 1, "files": {"../../x": "0"}}', "Cannot read .*captioner.json"),
        (json.dumps(written | {"format": 2}), "has format 2, this version reads 1: update"),
        (json.dumps(written), "incomplete: it has no encoder.npz"),
    ):
        path.write_text(text)
        (copy / "encoder.npz").unlink(missing_ok=True)
        with pytest.raises(RunError, match=says):
            sat_tf.load(copy)


def test_weights_that_do_not_fit_are_an_error(copy):
    files = {name: (copy / name).read_bytes() for name in published.checked_files(copy)}
    published.write(copy, files | {"decoder.npz": files["encoder.npz"]})
    with pytest.raises(RunError, match="do not fit|Cannot read"):
        sat_tf.load(copy)


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the Hub as a download asks of it."""

    folder: Path

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        path = self.path.partition("?")[0]
        files = {file.name: file for file in self.folder.iterdir()}
        headers, content, status = {"X-Repo-Commit": COMMIT}, b"{}", 404
        if path.startswith("/api/models/me/soft"):
            siblings = [{"rfilename": name} for name in files]
            info = {"_id": "0", "id": "me/soft", "sha": COMMIT, "siblings": siblings}
            content, status = json.dumps(info).encode(), 200
            if "/tree/" in path:
                sizes = {name: file.stat().st_size for name, file in files.items()}
                tree = [{"type": "file", "path": n, "size": s, "oid": n} for n, s in sizes.items()]
                content = json.dumps(tree).encode()
        elif path.startswith(f"/me/soft/resolve/{COMMIT}/") and path.split("/")[-1] in files:
            content, status = files[path.split("/")[-1]].read_bytes(), 200
            headers["ETag"] = f'"{hashlib.sha256(content).hexdigest()}"'
        else:
            headers["X-Error-Code"] = "RepoNotFound"
        self.send_response(status)
        for name, value in {**headers, "Content-Length": len(content)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def locate(name: str, endpoint: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """Looks a name up in a process of its own, as the Hub's client reads its settings once."""
    code = "import sys; from sat_tf.trained.published import locate; print(locate(sys.argv[1]))"
    settings = {"HF_ENDPOINT": endpoint, "HF_HOME": str(cache), "HF_HUB_DISABLE_XET": "1"}
    return subprocess.run(
        [sys.executable, "-c", code, name],
        env={**os.environ, **settings, "HF_HUB_DISABLE_TELEMETRY": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_hub_is_asked_once_and_its_cache_serves_offline(soft, tmp_path):
    pytest.importorskip("huggingface_hub")
    handler = type("OneFolder", (Hub,), {"folder": soft})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        online = locate("hf://me/soft", endpoint, tmp_path)
        missing = locate("hf://me/other", endpoint, tmp_path)
    finally:
        server.shutdown()
        server.server_close()
    assert online.returncode == 0, online.stderr
    folder = Path(online.stdout.strip())
    assert published.checked_files(folder).keys() == published.checked_files(soft).keys()
    assert "hf://me/other cannot be downloaded" in missing.stderr
    offline = locate("hf://me/soft", endpoint, tmp_path)
    assert offline.stdout == online.stdout, offline.stderr


def test_three_captioners_ship_with_one_encoder():
    assert sorted(published.names()) == NAMES
    weights = list(published.SHIPPED.rglob("*.npz"))  # with what int8 moves in the encoder
    assert len(weights) == 5 and sum(path.stat().st_size for path in weights) < 60e6


@pytest.mark.parametrize("name", NAMES)
def test_cards_say_whose_data_it_is_and_what_it_is_not_for(name):
    folder = published.locate(name)
    card = (folder / published.CARD).read_text("utf-8")
    assert published.checked_files(folder)
    assert "non-commercial research" in card and "## In int8" in card
    taught = published.taught_by(folder)
    assert taught["inherited"] == ["boxes", "captioners", "reward"]
    boxed = "Attention was supervised by people's boxes" in card
    assert ("boxes" in taught["own"]) is boxed is (name != "flickr8k_none")


@pytest.mark.slow
def test_a_photograph_gets_a_caption_with_maps():
    caption = sat_tf.load("flickr8k_soft").caption(SAMPLE)
    assert caption.text and caption.alpha.shape == (len(caption.words), 9, 9)
    np.testing.assert_allclose(caption.alpha.sum(axis=(1, 2)), 1.0, atol=1e-3)
    assert caption.alpha.max(axis=(1, 2)).mean() > 2 / 81  # peaked, not even
