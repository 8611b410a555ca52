"""Graphs of captioners in the cache: found by a fingerprint, checked, made by another process.

    CACHE/graphs/FINGERPRINT/           an export
    CACHE/graphs/encoder-HASH.tflite    the encoder's graph, for all captioners that have it
    CACHE/graphs/FINGERPRINT.failed     why LiteRT cannot hold this captioner
    CACHE/graphs/.draft-*               what is being made, by the process whose turn it is

A folder appears whole, by a rename. It may be deleted at any time. What a captioner's folder gives
never decides where a file is written: names are the hashes of contents.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from sat_tf.config import CaptionerConfig
from sat_tf.inference import published
from sat_tf.inference.litert_captioner import (
    FORMAT,
    SETTINGS,
    LiteRTCaptioner,
    check_digests,
    load,
    read_settings,
)
from sat_tf.text.vocabulary import Vocabulary
from sat_tf.util.fields import to_dict
from sat_tf.util.files import NO_LOCKS, default_cache_dir, json_object, read_content, sha256_of

if TYPE_CHECKING:
    from sat_tf.inference.graphs import Trained

VERSION = 5
"""Part of the fingerprint: raise it when `graphs.py` makes other graphs of the same captioner."""

SWITCH = "SAT_TF_LITE"
"""Environment variable; 0 leaves captions to TensorFlow, and makes no graphs; float32 asks for
graphs of that precision where int8 is the default."""

KEPT = 12
"""Captioners whose graphs are kept: those used last."""

_LOCK = ".lock"
_DRAFT = ".draft-"
_FREE = 2**29  # bytes that the cache's disk must have left; graphs of a large captioner fit
_LOG = logging.getLogger(__name__)


def fingerprint(config: CaptionerConfig, vocabulary: Vocabulary, weights: Sequence[str]) -> str:
    """Returns the name of a captioner's graphs; `weights` are the SHA-256 of their files."""
    made_of = [VERSION, FORMAT, to_dict(config), vocabulary.to_json(), *weights]
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:32]


def precision_of(captioner: Path) -> str:
    """Returns the precision of a captioner's graphs: `int8` where it was measured to be as good.

    `SAT_TF_LITE=float32` asks for float32.
    """
    exact = os.environ.get(SWITCH) == "float32" or published.means_file(captioner) is None
    return "float32" if exact else "int8"


def usable(config: CaptionerConfig) -> bool:
    """Returns whether graphs may caption: LiteRT is there, and no location is drawn.

    Without LiteRT a line says what to install, once.
    """
    if os.environ.get(SWITCH) == "0" or config.attention.selection == "sample":
        return False
    if find_spec("ai_edge_litert") is None:
        _say("Captions take TensorFlow, which is slow to start: `pip install ai-edge-litert`.")
        return False
    return True


def threads() -> int:
    """Returns how many threads LiteRT takes: more than the process has cores would take turns."""
    affinity = getattr(os, "sched_getaffinity", None)
    return min(4, len(affinity(0)) if affinity else os.cpu_count() or 1)


def folder_of(name: str) -> Path | None:
    """Returns the folder of whole graphs of a fingerprint, without opening them."""
    folder = _home() / name
    try:
        check_digests(folder, read_settings(folder))
    except (OSError, ValueError):
        return None
    return folder


def missing(name: str) -> bool:
    """Returns whether whole graphs of a fingerprint are missing, and making them has not failed."""
    return folder_of(name) is None and not (_home() / f"{name}.failed").exists()


def find(name: str) -> LiteRTCaptioner | None:
    """Opens the graphs of a fingerprint; None without whole ones."""
    folder = _home() / name
    try:
        found = load(folder, threads())
    except (OSError, ValueError, ImportError):
        return None
    with contextlib.suppress(OSError):
        _mark_used(folder)
    return found


def make_behind(command: Sequence[str], name: str) -> subprocess.Popen | None:
    """Starts a process that makes the graphs of this fingerprint.

    A cache that cannot take them is named in one line.

    Args:
        command: Makes them.
        name: The fingerprint.

    Returns:
        The process, which nobody needs to wait for; None if none was started.
    """
    home = _home()
    if (home / f"{name}.failed").exists():
        return None
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            pass
        if shutil.disk_usage(home).free < _FREE:
            raise OSError("the disk is full")
    except OSError as error:
        why = error.strerror or error
        _say(f"Captions take TensorFlow: their graphs cannot be kept in {home} ({why}).")
        return None
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": "-1"}
    silent = subprocess.DEVNULL
    # Of its own session: Ctrl-C and the end of this process are not its end.
    return subprocess.Popen(
        command,
        stdin=silent,
        stdout=silent,
        stderr=silent,
        env=environment,
        start_new_session=True,
    )


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """Waits until no other process makes graphs: the encoder that it makes may be shared."""
    import filelock

    home = _home()
    home.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(home / _LOCK, fallback_to_soft=False)
    try:
        lock.acquire()
        _remove_drafts(home)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    try:
        yield
    finally:
        lock.release()


def make(captioner: Trained, name: str) -> Path | None:
    """Makes the graphs of a captioner with this fingerprint; within `turn`.

    Returns:
        Their folder; None if LiteRT cannot hold the captioner.
    """
    from sat_tf.inference.graphs import encoder_name, write_graphs
    from sat_tf.inference.int8 import moved_means

    home, precision = _home(), precision_of(captioner.path)
    encoder = home / encoder_name(captioner, precision)
    if not _is_known(encoder):
        encoder.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix=_DRAFT) as draft:
        made, folder = Path(draft) / name, home / name
        made.mkdir()
        moved_means(captioner.path)  # a damaged file is an error; LiteRT may hold the captioner
        try:
            write_graphs(made, captioner, captioner.config.search, precision, encoder)
        except ValueError as error:
            (home / f"{name}.failed").write_text(f"{error}\n", "utf-8")
            return None
        shutil.rmtree(folder, ignore_errors=True)  # damaged
        made.rename(folder)
    _mark_used(folder)
    forget_old(home)
    return folder


def _mark_used(folder: Path) -> None:
    now = time.time()  # by the clock that `forget_old` asks, not by a file server's
    os.utime(folder, (now, now))


def forget_old(home: Path) -> None:
    """Removes graphs that were not used for longest, beyond `KEPT`, and encoders without use.

    Times ahead of the clock, which was set back since, count as the earliest.
    """
    times = {path.parent: path.parent.stat().st_mtime for path in home.glob(f"*/{SETTINGS}")}
    now = time.time()
    latest_first = sorted(times, key=lambda folder: (times[folder] > now, -times[folder]))
    for folder in latest_first[KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)
    used = {name for name, _ in _encoders(home)}
    for encoder in home.glob("encoder-*.tflite"):
        if encoder.name not in used:
            encoder.unlink(missing_ok=True)


def _remove_drafts(home: Path) -> None:
    """Removes what processes left that were killed in their turn."""
    for path in home.glob(".*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != _LOCK:
            path.unlink(missing_ok=True)


def _encoders(home: Path) -> Iterator[tuple[str, str]]:
    """Yields file and SHA-256 of each captioner's encoder."""
    for path in home.glob(f"*/{SETTINGS}"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            values = json_object(read_content(path))
            yield values["encoder"], values["digests"][values["encoder"]]


def _is_known(encoder: Path) -> bool:
    """Returns whether a shared encoder is there, as a captioner in the cache had it."""
    return encoder.is_file() and (encoder.name, sha256_of(encoder)) in _encoders(encoder.parent)


def _home() -> Path:
    return default_cache_dir() / "graphs"


_said: set[str] = set()


def _say(line: str) -> None:
    """Logs a line once in this process; without a configuration it goes to standard error."""
    if line not in _said:
        _said.add(line)
        _LOG.warning(line)
