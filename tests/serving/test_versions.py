"""Versions appear whole or not at all, whatever ends their writing; others are not versions."""

import os
import signal
import subprocess
import sys

from serving import versions
from serving.versions import find_versions, write_version


def modes_of(version) -> dict[str, set[int]]:
    """The permissions of a folder and all below it."""
    modes = {"folder": set(), "file": set()}
    for path in (version, *version.rglob("*")):
        modes["folder" if path.is_dir() else "file"].add(path.stat().st_mode & 0o777)
    return modes


def write_files(draft) -> None:
    """Writes a file that others may not read."""
    before = os.umask(0o077)
    (draft / "variables").mkdir(parents=True)
    for name in ("saved_model.pb", "variables/variables.index"):
        (draft / name).write_bytes(b"content")
    os.umask(before)
    assert modes_of(draft) == {"folder": {0o700}, "file": {0o600}}


def test_only_numbered_folders_with_a_graph_are_versions(tmp_path):
    others = ("x4", "-5", "6.0", "\u0667", "9" * 19, "1" * 30)
    for name in ("1", "2", *others):
        (tmp_path / name).mkdir()
        (tmp_path / name / versions.GRAPH_FILE).touch()
    (tmp_path / "3" / "variables").mkdir(parents=True)
    (tmp_path / "8").write_text("no folder")
    assert find_versions(tmp_path) == {1: tmp_path / "1", 2: tmp_path / "2"}
    assert write_version(tmp_path, write_files) == tmp_path / "9"  # 3 and 8 are taken


def test_others_may_read_all_of_it_whatever_the_umask(tmp_path):
    version = write_version(tmp_path, write_files)
    assert modes_of(version) == {"folder": {0o755}, "file": {0o644}}


def test_a_version_is_on_the_disk_before_it_has_its_number(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(versions, "sync", lambda path: synced.append((path, path.exists())))
    version = write_version(tmp_path, write_files)
    *inside, (last, _) = synced
    assert len(inside) == 4 and all(there for _, there in synced) and last == version.parent
    assert not any(path.exists() for path, _ in inside)


KILLED = """
import os, signal, sys
from pathlib import Path
from serving.versions import write_version

def write(draft):
    (draft / "saved_model.pb").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)

write_version(Path(sys.argv[1]), write)
"""


def test_an_export_that_is_killed_leaves_no_version(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=120)
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()  # nothing tidies up after a kill
    assert (left / "saved_model.pb").exists() and not find_versions(tmp_path)
    version = write_version(tmp_path, lambda draft: (draft / "saved_model.pb").touch())
    assert version == tmp_path / "1" and find_versions(tmp_path) == {1: version}
