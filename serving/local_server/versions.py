"""Versions of one model: found in its folder, loaded, handed to calls."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from tensorflow_serving.apis import get_model_status_pb2, model_pb2

from serving.local_server.servable import Servable, StatusError, cut, invalid, not_found, status_of
from serving.versions import find_versions

_LOG = logging.getLogger(__name__)

Status = get_model_status_pb2.ModelVersionStatus


class Versions:
    """The versions of a model, of which the newest that loads is served.

    It is loaded before the one before goes, whose memory is freed with its last call.

    Args:
        folder: Holds a folder for each version, named by its number.
        model: The name under which callers ask for it.
        load: Loads one version from its folder, ready to answer.
    """

    def __init__(self, folder: Path, model: str, load: Callable[[Path], Servable]) -> None:
        self.model = model
        self._folder, self._load = folder, load
        self._served: tuple[int, Servable] | None = None
        self._states: dict[int, Status] = {}  # replaced as a whole, as calls read it meanwhile
        self._failed: dict[int, frozenset] = {}  # files of the versions that do not load
        self._stopped = threading.Event()
        self._watcher: threading.Thread | None = None

    @property
    def served(self) -> int | None:
        """The number of the version that is served, if any."""
        return self._served[0] if self._served else None

    def refresh(self) -> None:
        """Looks at the folder once; what is served stays if nothing there loads."""
        found = find_versions(self._folder)
        for number in sorted(found, reverse=True):
            if number == self.served or self._serve(number, found[number]):
                break

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
                        _LOG.error("Cannot look for versions, the one loaded stays: %s", error)

        self._watcher = threading.Thread(target=look, name="versions", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """Serves nothing any more."""
        self._stopped.set()
        if self._watcher:
            self._watcher.join()
        self._served = None

    def find(self, spec: model_pb2.ModelSpec) -> tuple[int, Servable]:
        """Returns the version that a request asks for.

        Raises:
            StatusError: It is not served.
        """
        if not spec.name:
            raise invalid("ModelSpec has no name specified.")
        wanted, served = _chosen_version(spec), self._served
        if spec.name != self.model or served is None or wanted not in (None, served[0]):
            which = spec.name if wanted is None else f"{spec.name}, {wanted}"
            kind = "Latest" if wanted is None else "Specific"
            raise not_found(f"Servable not found for request: {kind}({which})")
        return served

    def states(self, spec: model_pb2.ModelSpec) -> list[Status]:
        """Returns the state of a version, or of all that were ever found, newest first.

        Raises:
            StatusError: There is no such model or version.
        """
        wanted = _chosen_version(spec)
        known = self._states if spec.name == self.model else {}
        numbers = sorted(known, reverse=True) if wanted is None else {wanted} & known.keys()
        if not numbers:
            which = "any versions" if wanted is None else f"version {wanted}"
            raise not_found(f"Could not find {which} of model {spec.name}")
        return [known[number] for number in numbers]

    def _serve(self, number: int, path: Path) -> bool:
        """Loads a version to be served; returns False if it does not load."""
        files = _describe_files(path)
        if self._failed.get(number) == files:
            return False  # nothing has changed since
        self._note(number, Status.LOADING)
        _LOG.info("Loading version %d of %s, and warming it up ...", number, self.model)
        try:
            servable = self._load(path)
        except Exception as error:  # Whatever is wrong with it, the one before stays.
            _LOG.error("Version %d of %s does not load: %s", number, self.model, error)
            self._failed[number] = files
            self._note(number, Status.END, status_of(error), path)
            return False
        before, self._served = self.served, (number, servable)
        self._note(number, Status.AVAILABLE)
        _LOG.info("Version %d of %s is served", number, self.model)
        if before is not None:
            self._note(before, Status.END)
            _LOG.info("Version %d of %s takes no new calls", before, self.model)
        return True

    def _note(
        self,
        number: int,
        state: int,
        error: StatusError | None = None,
        path: Path = Path(),
    ) -> None:
        status = Status(version=number, state=state)
        # Set in any case: the real server always sends a status, OK where nothing is wrong.
        status.status.SetInParent()
        if error is not None:
            status.status.error_code = error.code.value[0]
            text = error.message
            for folder in (path, path.resolve()):  # none of the caller's business
                text = text.replace(str(folder), f"version {number}")
            status.status.error_message = cut(text)
        self._states = {**self._states, number: status}


def _chosen_version(spec: model_pb2.ModelSpec) -> int | None:
    """Returns the number of the version that a request asks for; None is the newest."""
    choice = spec.WhichOneof("version_choice")
    if choice == "version_label":  # there are none here
        raise invalid(f"Unrecognized servable version label: {spec.version_label}")
    return spec.version.value if choice else None


def _describe_files(folder: Path) -> frozenset:
    """Returns names, sizes and times of a version's files, equal while nothing changes."""
    described = set()
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # gone since it was listed
            found = path.stat()
            described.add((path, found.st_size, found.st_mtime_ns))
    return frozenset(described)
