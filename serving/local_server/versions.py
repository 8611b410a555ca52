"""Versions of one model: found in its folder, loaded, lent to calls, drained, unloaded."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tensorflow_serving.apis import get_model_status_pb2, model_pb2

from serving.local_server import statuses
from serving.local_server.servable import Servable
from serving.versions import find_versions

_LOG = logging.getLogger(__name__)

State = get_model_status_pb2.ModelVersionStatus.State


@dataclass
class _Version:
    """A version that was found: its state, and the number of calls it is answering."""

    number: int
    path: Path
    state: int = State.LOADING
    servable: Servable | None = None
    error: statuses.StatusError | None = None
    calls: int = 0
    files: frozenset = frozenset()


class Versions:
    """All versions of a model.

    Served is the newest version that loads, which is loaded before the one before goes. That takes
    no new calls then, and is unloaded after its last one.

    Args:
        folder: Holds a folder for each version, named by its number.
        model: The name under which callers ask for it.
        load: Loads one version from its folder, ready to answer.
    """

    def __init__(self, folder: Path, model: str, load: Callable[[Path], Servable]) -> None:
        self.model = model
        self._folder, self._load = folder, load
        self._versions: dict[int, _Version] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._watcher: threading.Thread | None = None

    def available(self) -> list[int]:
        """The versions that are served, oldest first."""
        with self._lock:
            return self._available()

    def failures(self) -> dict[int, str]:
        """The versions that do not load, and why."""
        with self._lock:
            return {n: v.error.message for n, v in self._versions.items() if v.error}

    def refresh(self) -> None:
        """Looks at the folder once: loads the newest version, then drops the others."""
        found = find_versions(self._folder)
        newest = (n for n in sorted(found, reverse=True) if self._is_loaded(n, found[n]))
        latest = next(newest, None)
        if latest is None:  # what is served stays, though its folder is gone
            latest = max(self.available(), default=0)
        self._drop_all_but(latest)

    def watch(self, seconds: float) -> None:
        """Keeps looking at the folder, in its own thread, until `close`."""

        def look() -> None:
            failure = ""
            while not self._stopped.wait(seconds):
                try:
                    self.refresh()
                    failure = ""
                except Exception as error:  # A folder that is away now may come back.
                    if str(error) != failure:
                        failure = str(error)
                        _LOG.error("Cannot look for versions, those loaded stay: %s", error)

        self._watcher = threading.Thread(target=look, name="versions", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """Unloads everything; a version in use goes when its last call ends."""
        self._stopped.set()
        if self._watcher:
            self._watcher.join()
        self._drop_all_but(None)

    @contextlib.contextmanager
    def use(self, spec: model_pb2.ModelSpec) -> Iterator[tuple[int, Servable]]:
        """Lends the version that a request asks for, which stays loaded inside the `with`.

        Raises:
            StatusError: There is no such model or version.
        """
        if not spec.name:
            raise statuses.invalid("ModelSpec has no name specified.")
        wanted = _chosen_version(spec)
        with self._lock:
            number = max(self._available(), default=None) if wanted is None else wanted
            version = self._versions.get(number) if spec.name == self.model else None
            if version is None or version.state != State.AVAILABLE:
                which = spec.name if wanted is None else f"{spec.name}, {wanted}"
                kind = "Latest" if wanted is None else "Specific"
                raise statuses.not_found(f"Servable not found for request: {kind}({which})")
            version.calls += 1
        try:
            yield version.number, version.servable
        finally:
            with self._lock:
                version.calls -= 1
            self._unload_if_idle(version)

    def states(self, spec: model_pb2.ModelSpec) -> list[get_model_status_pb2.ModelVersionStatus]:
        """Returns the state of a version, or of all that were ever found, newest first.

        Raises:
            StatusError: There is no such model or version.
        """
        wanted = _chosen_version(spec)
        with self._lock:
            known = self._versions if spec.name == self.model else {}
            numbers = sorted(known, reverse=True) if wanted is None else {wanted} & known.keys()
            if not numbers:
                which = "any versions" if wanted is None else f"version {wanted}"
                raise statuses.not_found(f"Could not find {which} of model {spec.name}")
            return [_state_message(known[number]) for number in numbers]

    def _available(self) -> list[int]:
        return sorted(n for n, v in self._versions.items() if v.state == State.AVAILABLE)

    def _is_loaded(self, number: int, path: Path) -> bool:
        """Loads a version if needed; returns False if it does not load."""
        known = self._versions.get(number)
        if known and known.state == State.AVAILABLE:
            return True
        files = _describe_files(path)
        if known and known.error and known.files == files:
            return False  # it failed, and nothing has changed since
        version = _Version(number, path, files=files)
        with self._lock:
            self._versions[number] = version
        _LOG.info("Loading version %d of %s, and warming it up ...", number, self.model)
        try:
            servable = self._load(path)
        except Exception as error:  # Whatever is wrong with it, the others stay.
            _LOG.error("Version %d of %s does not load: %s", number, self.model, error)
            with self._lock:
                version.state, version.error = State.END, statuses.of_exception(error)
            return False
        with self._lock:
            version.servable, version.state = servable, State.AVAILABLE
        _LOG.info("Version %d of %s is served", number, self.model)
        return True

    def _drop_all_but(self, kept: int | None) -> None:
        """Lets versions take no new calls, and unloads those that have none."""
        with self._lock:
            dropped = [self._versions[number] for number in self._available() if number != kept]
            for version in dropped:
                version.state = State.UNLOADING
        for version in dropped:
            _LOG.info("Version %d of %s takes no new calls", version.number, self.model)
            self._unload_if_idle(version)

    def _unload_if_idle(self, version: _Version) -> None:
        with self._lock:
            if version.state != State.UNLOADING or version.calls:
                return
            version.state, servable, version.servable = State.END, version.servable, None
        servable.close()
        _LOG.info("Version %d of %s is unloaded", version.number, self.model)


def _chosen_version(spec: model_pb2.ModelSpec) -> int | None:
    """Returns the number of the version that a request asks for; None is the newest."""
    choice = spec.WhichOneof("version_choice")
    if choice == "version_label":  # there are none here
        raise statuses.invalid(f"Unrecognized servable version label: {spec.version_label}")
    return spec.version.value if choice else None


def _describe_files(folder: Path) -> frozenset:
    """Returns names, sizes and times of a version's files, equal while nothing changes."""
    described = set()
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # gone since it was listed
            found = path.stat()
            described.add((path, found.st_size, found.st_mtime_ns))
    return frozenset(described)


def _state_message(version: _Version) -> get_model_status_pb2.ModelVersionStatus:
    message = get_model_status_pb2.ModelVersionStatus(version=version.number, state=version.state)
    # Set in any case: the real server always sends a status, OK where nothing is wrong.
    message.status.SetInParent()
    if version.error:
        message.status.error_code = version.error.code.value[0]
        text = version.error.message
        for folder in (version.path, version.path.resolve()):  # none of the caller's business
            text = text.replace(str(folder), f"version {version.number}")
        message.status.error_message = statuses.cut(text)
    return message
