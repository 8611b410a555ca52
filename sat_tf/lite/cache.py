"""Graphs of captioners in the cache: found by a fingerprint, checked, made by another process.

    CACHE/graphs/FINGERPRINT/           an export, and graphs.json with a checksum of each file
    CACHE/graphs/encoder-HASH.tflite    the encoder's graph, for all captioners that have it
    CACHE/graphs/FINGERPRINT.failed     why LiteRT cannot hold this captioner

A folder appears whole, by a rename. It may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from sat_tf.config import CaptionerConfig
from sat_tf.errors import RunError
from sat_tf.fields import to_dict
from sat_tf.files import NO_LOCKS, default_cache_dir, write_json
from sat_tf.lite.captioner import (
    FORMAT,
    SETTINGS,
    VOCABULARY,
    LiteRTCaptioner,
    read_settings,
)
from sat_tf.vocabulary import Vocabulary

if TYPE_CHECKING:
    from sat_tf.runs import TrainedCaptioner

VERSION = 3
"""Part of the fingerprint: raise it when `graphs.py` makes other graphs of the same captioner."""

SWITCH = "SAT_TF_LITE"
"""Environment variable; 0 leaves captions to TensorFlow, and makes no graphs."""

KEPT = 12
"""Captioners whose graphs are kept: those used last."""

PACKED = ".npz"
"""Suffix that the file of a graph gets when it is packed."""

MANY = 64
"""Images at once that are worth the start of TensorFlow if it sees a GPU."""

_MANIFEST = "graphs.json"
_FREE = 2**29  # bytes that the cache's disk must have left; graphs of a large captioner fit
_MAKE = """
import os, sys
if hasattr(os, "nice"):
    os.nice(10)
from sat_tf.runs import make_graphs
make_graphs(*sys.argv[1:])
"""
_LOG = logging.getLogger(__name__)


def fingerprint(config: CaptionerConfig, vocabulary: Vocabulary, weights: Sequence[str]) -> str:
    """Returns the name of a captioner's graphs; `weights` are the SHA-256 of their files."""
    made_of = [VERSION, FORMAT, to_dict(config), vocabulary.to_json(), *weights]
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:32]


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


def worth_a_gpu(images: int) -> bool:
    """Returns whether TensorFlow captions so many images sooner: `MANY`, and a GPU of NVIDIA."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if images < MANY or hidden or find_spec("tensorflow") is None:
        return False
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def threads() -> int:
    """Returns how many threads LiteRT takes."""
    return min(4, os.cpu_count() or 1)


def folder_of(name: str, home: Path | None = None) -> Path | None:
    """Returns the folder of whole graphs of a fingerprint, without opening them."""
    folder = (home or _home()) / name
    try:
        sums = json.loads((folder / _MANIFEST).read_text("utf-8"))["files"]
        whole = all(_checksum(path) == sums[path.name] for path in _files(folder))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return folder if whole else None


def missing(name: str) -> bool:
    """Returns whether whole graphs of a fingerprint are missing, and making them has not failed."""
    return folder_of(name) is None and not (_home() / f"{name}.failed").exists()


def find(name: str, home: Path | None = None) -> LiteRTCaptioner | None:
    """Opens the graphs of a fingerprint, by default the cache's; None without whole ones."""
    folder = folder_of(name, home)
    if folder is None:
        return None
    try:
        found = LiteRTCaptioner(folder, threads())
        height, width = json.loads((folder / _MANIFEST).read_text("utf-8"))["grid"]
        found.grid = (height, width)  # its settings do not have it without attention
    except (OSError, ValueError, KeyError, TypeError, ImportError):
        return None
    with contextlib.suppress(OSError):
        os.utime(folder)  # used last now
    return found


def unpack(packed: Path, name: str) -> LiteRTCaptioner:
    """Opens the packed graphs of a wheel: by the cache or, where that takes none, by memory alone.

    Raises:
        RunError: They are damaged.
    """
    found = None
    try:
        with turn():
            if (found := find(name)) is None:
                _unpack_into(_home(), packed, name)
                found = find(name)
                forget_old(_home())
    except OSError as error:
        _say(f"The graphs are unpacked each time: they cannot be kept in {_home()} ({error}).")
        with tempfile.TemporaryDirectory() as home:  # LiteRT holds what it has opened
            _unpack_into(Path(home), packed, name)
            found = find(name, Path(home))
    if found is None:
        raise RunError(f"{packed} is damaged: install the wheel again.")
    return found


def _unpack_into(home: Path, packed: Path, name: str) -> None:
    from sat_tf.packing import unpack_graph

    files = json.loads((packed / _MANIFEST).read_text("utf-8"))["files"]
    with tempfile.TemporaryDirectory(dir=home, prefix=".") as draft:
        made = Path(draft) / name
        made.mkdir()
        shutil.copyfile(packed / _MANIFEST, made / _MANIFEST)
        for file, expected in files.items():
            path, kept = packed / file, home / file
            if path.is_file():
                shutil.copyfile(path, made / file)
                continue
            shared = packed.parents[1] / f"{file}{PACKED}"
            if shared.is_file() and kept.is_file() and _checksum(kept) == expected:
                continue
            path = shared if shared.is_file() else packed / f"{file}{PACKED}"
            try:
                content = unpack_graph(path.read_bytes())
            except ValueError as error:
                raise RunError(f"{path} is damaged: install the wheel again.") from error
            (made / file).write_bytes(content)
            if path == shared:
                os.replace(made / file, kept)
        shutil.rmtree(home / name, ignore_errors=True)  # damaged
        made.rename(home / name)


def write_packed(graphs: Path, packed: Path) -> None:
    """Packs graphs of the cache for a wheel.

    Args:
        graphs: Their folder in the cache.
        packed: A new folder, below that of the captioner. The encoder's graph is written beside
            the captioner's folder, where other captioners find it.
    """
    from sat_tf.packing import pack_graph, unpack_graph

    packed.mkdir()
    manifest = json.loads((graphs / _MANIFEST).read_text("utf-8"))
    for path in _files(graphs):
        if path.suffix != ".tflite":
            shutil.copyfile(path, packed / path.name)
            continue
        folder = packed if path.parent == graphs else packed.parents[1]
        target = folder / f"{path.name}{PACKED}"
        if not target.exists():
            target.write_bytes(pack_graph(path))
        # Of what comes back, which may differ from the graph in the last bits.
        manifest["files"][path.name] = zlib.crc32(unpack_graph(target.read_bytes()))
    write_json(packed / _MANIFEST, manifest)


def make_behind(path: Path, name: str) -> subprocess.Popen | None:
    """Starts a process that makes the graphs of the captioner in a folder, of this fingerprint.

    A cache that cannot take them is named in one line.

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
        [sys.executable, "-c", _MAKE, str(path.absolute())],
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
    lock = filelock.FileLock(home / ".lock", fallback_to_soft=False)
    try:
        lock.acquire()
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    try:
        yield
    finally:
        lock.release()


def make(captioner: TrainedCaptioner, name: str) -> Path | None:
    """Makes the graphs of a captioner with this fingerprint; within `turn`.

    Returns:
        Their folder; None if LiteRT cannot hold the captioner.
    """
    from sat_tf.lite.graphs import encoder_name, write_graphs

    home, folder = _home(), _home() / name
    encoder = home / encoder_name(captioner)
    if encoder.exists() and not _is_known(encoder):
        encoder.unlink()
    with tempfile.TemporaryDirectory(dir=home, prefix=".") as draft:
        made = Path(draft) / name
        made.mkdir()
        try:
            write_graphs(made, captioner, captioner.config.search, "float32", encoder)
        except ValueError as error:
            (home / f"{name}.failed").write_text(f"{error}\n", "utf-8")
            return None
        shutil.rmtree(folder, ignore_errors=True)  # damaged
        sums = {path.name: _checksum(path) for path in (*made.iterdir(), encoder)}
        write_json(made / _MANIFEST, {"grid": captioner.grid, "files": sums})
        made.rename(folder)
    forget_old(home)
    return folder


def forget_old(home: Path) -> None:
    """Removes graphs that were not used for longest, beyond `KEPT`, and encoders without use."""
    folders = [path.parent for path in home.glob(f"*/{_MANIFEST}")]
    for folder in sorted(folders, key=lambda path: -path.stat().st_mtime)[KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)
    used = {name for files in _manifests(home) for name in files}
    for encoder in home.glob("encoder-*.tflite"):
        if encoder.name not in used:
            encoder.unlink(missing_ok=True)


def _manifests(home: Path) -> Iterator[dict[str, int]]:
    """Yields the checksums of each captioner's files."""
    for path in home.glob(f"*/{_MANIFEST}"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            yield json.loads(path.read_text("utf-8"))["files"]


def _is_known(encoder: Path) -> bool:
    """Returns whether a shared encoder is as a captioner in the cache had it."""
    found = _checksum(encoder)
    return any(files.get(encoder.name) == found for files in _manifests(encoder.parent))


def _files(folder: Path) -> list[Path]:
    """Returns the files of an export."""
    graphs = read_settings(folder).files(folder).values()
    return [*graphs, folder / SETTINGS, folder / VOCABULARY]


def _checksum(path: Path) -> int:
    """Computes the CRC-32 of a file, once: SHA-256 of the graphs takes longer than their start."""
    found = path.stat()
    return _checksum_of(path, found.st_size, found.st_mtime_ns)


@functools.lru_cache
def _checksum_of(path: Path, *_: int) -> int:
    value = 0
    with path.open("rb") as file:
        while block := file.read(2**20):
            value = zlib.crc32(block, value)
    return value


def _home() -> Path:
    return default_cache_dir() / "graphs"


_said: set[str] = set()


def _say(line: str) -> None:
    """Logs a line once in this process; without a configuration it goes to standard error."""
    if line not in _said:
        _said.add(line)
        _LOG.warning(line)
