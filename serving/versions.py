"""Versions of an export: numbered folders, each written whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from sat_tf.util.files import sync

GRAPH_FILE = "saved_model.pb"
CARD_FILE = Path("assets.extra") / "MODEL_CARD.md"
WARM_UP_FILE = Path("assets.extra") / "tf_serving_warmup_requests"
"""Files of a version; TensorFlow and TF Serving name the first and the last."""

_DRAFT = ".writing-"  # no number: a server that polls the folder skips it
_MOST_VERSION = 2**63 - 1  # the versions of TF Serving's protocol are int64


def find_versions(folder: Path) -> dict[int, Path]:
    """Finds the folders named by a number that hold a SavedModel's graph.

    Folders of other names, and those still being copied that have no graph yet, are skipped.

    Raises:
        OSError: The folder cannot be read.
    """
    numbered = ((_number(path.name), path) for path in sorted(folder.iterdir()))
    return {n: path for n, path in numbered if n is not None and (path / GRAPH_FILE).is_file()}


def _number(name: str) -> int | None:
    if not (name.isascii() and name.isdigit() and len(name) < 20):
        return None
    return number if (number := int(name)) <= _MOST_VERSION else None


def write_version(out: Path, write: Callable[[Path], None]) -> Path:
    """Writes the next version below a folder, whole or not at all.

    Args:
        out: The folder of the versions, made if missing.
        write: Writes the contents into an empty folder.

    Returns:
        The version's folder, `OUT/1` the first time.

    Raises:
        OSError: `out` cannot be written to.
    """
    out.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=out))
    try:
        write(draft)
        make_durable(draft)
        while True:
            numbers = (_number(path.name) or 0 for path in out.iterdir())
            version = out / str(max(numbers, default=0) + 1)
            try:
                draft.rename(version)
                break
            except OSError:  # another export may have taken the number in the meantime
                if not version.exists():
                    raise
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    sync(out)
    return version


def make_durable(folder: Path) -> None:
    """Makes a folder readable by all, as servers are other users, and syncs it to disk."""
    for path in (*folder.rglob("*"), folder):
        path.chmod(0o755 if path.is_dir() else 0o644)
        sync(path)
