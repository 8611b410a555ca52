"""Versions of one model: found in its folder, loaded, lent to calls, drained, unloaded."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc
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

    Served are the newest version that loads and those that have a label. A version that is no
    longer wanted takes no new calls and is unloaded after its last one; the newest is loaded
    before an older one goes.

    Args:
        folder: Holds a folder for each version, named by its number.
        model: The name under which callers ask for it.
        load: Loads one version from its folder, ready to answer.
        labels: Versions by label.
    """

    def __init__(
        self,
        folder: Path,
        model: str,
        load: Callable[[Path], Servable],
        labels: Mapping[str, int] | None = None,
    ) -> None:
        self.model = model
        self._folder, self._load, self._labels = folder, load, dict(labels or {})
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
        """Looks at the folder once: loads what is new, then drops what is no longer wanted."""
        found = find_versions(self._folder)
        wanted = {number for number in self._labels.values() if number in found}
        for number in sorted(wanted):
            self._is_loaded(number, found[number])
        newest = (n for n in sorted(found, reverse=True) if self._is_loaded(n, found[n]))
        latest = next(newest, None)
        if latest is None:  # what is served stays, though its folder is gone
            latest = max(self.available(), default=0)
        self._drop_all_but(wanted | {latest})

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
        self._drop_all_but(set())

    @contextlib.contextmanager
    def use(self, spec: model_pb2.ModelSpec) -> Iterator[tuple[int, Servable]]:
        """Lends the version that a request asks for, which stays loaded inside the `with`.

        Raises:
            StatusError: There is no such model, version or label.
        """
        if not spec.name:
            raise statuses.invalid("ModelSpec has no name specified.")
        choice = spec.WhichOneof("version_choice")
        if choice == "version_label":
            wanted = self._labelled(spec)
        else:
            wanted = spec.version.value if choice else None
            if spec.name != self.model:
                raise _not_found(spec.name, wanted)
        with self._lock:
            number = max(self._available(), default=None) if wanted is None else wanted
            version = self._versions.get(number)
            if version is None or version.state != State.AVAILABLE:
                raise _not_found(spec.name, wanted)
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
        number = self._labelled(spec) if spec.version_label else spec.version.value
        with self._lock:
            found = dict(self._versions) if spec.name == self.model else {}
            if spec.WhichOneof("version_choice"):
                found = {number: found[number]} if number in found else {}
                missing = f"Could not find version {number} of model {spec.name}"
            else:
                missing = f"Could not find any versions of model {spec.name}"
            if not found:
                raise statuses.StatusError(grpc.StatusCode.NOT_FOUND, missing)
            return [_state_message(found[n]) for n in sorted(found, reverse=True)]

    def _labelled(self, spec: model_pb2.ModelSpec) -> int:
        label = spec.version_label
        if spec.name != self.model or label not in self._labels:
            raise statuses.invalid(f"Unrecognized servable version label: {label}")
        return self._labels[label]

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

    def _drop_all_but(self, kept: set[int]) -> None:
        """Lets versions take no new calls, and unloads those that have none."""
        with self._lock:
            dropped = [self._versions[number] for number in self._available() if number not in kept]
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


def _not_found(model: str, version: int | None) -> statuses.StatusError:
    """Makes the error that no such model or version is served; None is the latest version."""
    wanted = f"Latest({model})" if version is None else f"Specific({model}, {version})"
    message = f"Servable not found for request: {wanted}"
    return statuses.StatusError(grpc.StatusCode.NOT_FOUND, message)


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
