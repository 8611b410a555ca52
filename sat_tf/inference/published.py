"""Published models: folders of plain, checked files, found by name. Imports no TensorFlow."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sat_tf.util.errors import RunError, installation
from sat_tf.util.files import json_object, read_content, write_atomically, write_json

SHIPPED = Path(__file__).parents[1] / "captioners"
"""Folder of the models that ship with the package."""

MANIFEST, CARD = "captioner.json", "README.md"
CONFIG, VOCABULARY = "config.json", "vocabulary.json"
TRAINING_IMAGES = "training_images.json"
"""Record of the images that a captioner learned from; digit models have none."""
FAMILIARITY, CONFIDENCE = "familiarity.json", "confidence.json"
"""A captioner's knowledge of its limits, see `limits`, if it has learned them."""
RECORDS = (TRAINING_IMAGES, FAMILIARITY, CONFIDENCE)
"""Files that a captioner can be loaded without."""
WEIGHTS = {"encoder": "encoder.npz", "decoder": "decoder.npz"}
"""Files of the weights, by part of the captioner."""

_FILES = {
    MANIFEST: {CONFIG, VOCABULARY, *WEIGHTS.values()},
}
"""Files of each kind of model, by the name of its manifest."""
HOMES: dict[str, Path] = {}
"""Folders of the models that ship, of the kinds beside captioners."""


_FORMAT = 1
_TAUGHT_BY, _TRAINING_IMAGES = "taught_by", "training_images"
# `Path` turns the two slashes of hf:// into one.
_HUB = re.compile(r"hf:/{1,2}(?P<repo>[^/@]+/[^/@]+)(?:@(?P<revision>.+))?")


def add_kind(manifest: str, files: Collection[str], home: Path) -> None:
    """Adds a kind of models beside captioners.

    Args:
        manifest: Name of the file with the SHA-256 of the others.
        files: Names of those.
        home: Folder of the models that ship.
    """
    _FILES[manifest], HOMES[manifest] = set(files), home


def names(manifest: str = MANIFEST) -> list[str]:
    """Lists the captioners, or the models with another manifest, that ship with the package."""
    return sorted(path.parent.name for path in _home(manifest).glob(f"*/{manifest}"))


def _home(manifest: str) -> Path:
    return HOMES.get(manifest, SHIPPED)


def read_card(folder: Path) -> str:
    """Reads the card of a published model; empty if it has none, as a card is not checked."""
    path = folder / CARD
    return path.read_text("utf-8") if path.is_file() else ""


def knows(folder: Path) -> str:
    """Returns a published captioner's sentence on what it knows; empty if its card has none."""
    found = re.search(r"^## What it knows\n+(.+)", read_card(folder), re.MULTILINE)
    return found[1].strip() if found else ""


def locate(name: str | Path) -> Path:
    """Returns the folder of a run or of a published model.

    Args:
        name: A folder; or the name of a model that ships; or `hf://OWNER/NAME[@REVISION]`,
            downloaded from the Hugging Face Hub unless its cache has it.

    Raises:
        RunError: There is none.
    """
    hub = _HUB.fullmatch(str(name))
    if hub is not None:
        return _download(**hub.groupdict())
    path = Path(name)
    shipped = {one: _home(manifest) / one for manifest in _FILES for one in names(manifest)}
    if path.exists():
        return path
    if str(name) in shipped:
        return shipped[str(name)]
    close = difflib.get_close_matches(str(name), shipped, n=1)
    known = f"did you mean {close[0]}?" if close else ", ".join(shipped) or "none do"
    raise RunError(f"There is no run folder {name}, and no model of that name ships: {known}")


def output_dir(name: str | Path) -> Path:
    """Returns the folder for evaluations and exports of a run or published model.

    It is the folder itself, or `captioners/NAME` for one that ships or comes from the Hub.
    """
    path, hub = Path(name), _HUB.fullmatch(str(name))
    if path.exists():
        return path
    return Path("captioners") / Path(hub["repo"] if hub else path).name


def bare_name(name: str) -> str:
    """Returns what `locate` takes without the folders of a machine: a path's last part."""
    return name if _HUB.fullmatch(name) else Path(name).name


def manifest_of(folder: Path) -> Path | None:
    """Returns the manifest of a published model; None for a run, which has none."""
    return next((folder / name for name in _FILES if (folder / name).is_file()), None)


def is_published(folder: Path) -> bool:
    """Returns whether a folder holds a published model."""
    return manifest_of(folder) is not None


def checked_files(folder: Path, names: Collection[str] | None = None) -> dict[str, Path]:
    """Returns files of a published model by name, all by default, each equal to its SHA-256.

    Captioners side by side may share an encoder: the file `encoder-HASH.npz` beside their folders.

    Raises:
        RunError: The manifest or a file is missing, damaged or of another format.
    """
    files = _read_manifest(manifest_of(folder) or folder / MANIFEST)["files"]
    wanted = [name for name in files if names is None or name in names]
    return {name: _checked(folder, name, files[name]) for name in wanted}


def _checked(folder: Path, name: str, expected: str) -> Path:
    """Returns the place of a file, which neighbours of the folder may share."""
    path = folder / name
    if not path.is_file():
        path = _shared(folder, name, expected)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(f"{folder} is incomplete: it has no {name}.") from error
    if (found := _sha256(content)) != expected:
        raise RunError(
            f"{path} is damaged or was changed: expected the SHA-256 {expected[:12]}..., got "
            f"{found[:12]}... Publish, download or install it again."
        )
    return path


def weight_hashes(folder: Path) -> list[str]:
    """Returns the SHA-256 of a captioner's files of weights, as its manifest has them.

    Raises:
        RunError: The manifest cannot be read.
    """
    files = _read_manifest(folder / MANIFEST)["files"]
    return [files[name] for name in WEIGHTS.values()]


def means_file(folder: Path | None) -> Path | None:
    """Returns the file of `lite.int8.moved_means` of a published captioner, if there is one."""
    if folder is None or not (folder / MANIFEST).is_file():
        return None
    path = folder.absolute().parent / f"encoder-{weight_hashes(folder)[0][:16]}.int8.npz"
    return path if path.is_file() else None


def taught_by(folder: Path) -> dict[str, list[str]]:
    """Returns the teachers that a captioner's manifest names, see `write`.

    Raises:
        RunError: The manifest cannot be read, or names none.
    """
    found = _read_manifest(folder / MANIFEST).get(_TAUGHT_BY)
    if found is None:
        raise RunError(f"{folder / MANIFEST} does not say what taught it: publish it again.")
    return found


def training_images(folder: Path) -> bytes | None:
    """Returns the record of a captioner's training images; None if it has none, or another's.

    Raises:
        RunError: The manifest cannot be read.
    """
    expected = _read_manifest(manifest_of(folder) or folder / MANIFEST).get(_TRAINING_IMAGES)
    if not isinstance(expected, str):
        return None
    for path in (folder / TRAINING_IMAGES, _shared(folder, TRAINING_IMAGES, expected)):
        if path.is_file() and _sha256(content := path.read_bytes()) == expected:
            return content
    return None


def record(folder: Path, name: str) -> Path | None:
    """Returns one of `RECORDS`, equal to its SHA-256; None if the captioner has none.

    Raises:
        RunError: The manifest or the file is missing or damaged.
    """
    expected = _read_manifest(folder / MANIFEST).get(Path(name).stem)
    return None if expected is None else _checked(folder, name, str(expected))


def write(
    folder: Path,
    contents: Mapping[str, bytes],
    share_encoder: bool = False,
    teachers: Mapping[str, Sequence[str]] | None = None,
    records: Mapping[str, bytes] | None = None,
) -> None:
    """Writes the files of a model, the manifest last.

    Args:
        folder: A new folder, or one to be replaced.
        contents: The bytes of each file.
        share_encoder: Write encoder, training images and familiarity beside the folder, for its
            neighbours.
        teachers: What taught a captioner beside captions, for those who learn from it: `own` and
            `inherited` teachers.
        records: Those of `RECORDS` that there are.

    Raises:
        RunError: The folder has a model of another kind.
    """
    (manifest,) = (name for name, files in _FILES.items() if files == contents.keys())
    if manifest_of(folder) not in (None, folder / manifest):
        raise RunError(
            f"{folder} holds a model of another kind: remove it, or name another folder."
        )
    folder.mkdir(parents=True, exist_ok=True)
    hashes = {name: _sha256(content) for name, content in contents.items()}
    for name in RECORDS:
        (folder / name).unlink(missing_ok=True)
    values = {"format": _FORMAT, "files": hashes}
    values |= {} if teachers is None else {_TAUGHT_BY: teachers}
    # Not among the files without which nothing can be loaded.
    for name, content in (dict(contents) | dict(records or {})).items():
        path, digest = folder / name, _sha256(content)
        if share_encoder and name in (WEIGHTS["encoder"], TRAINING_IMAGES, FAMILIARITY):
            path.unlink(missing_ok=True)
            path = _shared(folder, name, digest)
        write_atomically(path, content)
        values |= {Path(name).stem: digest} if name in RECORDS else {}
    write_json(folder / manifest, values)


def _shared(folder: Path, name: str, sha256: str) -> Path:
    return folder.absolute().parent / f"{Path(name).stem}-{sha256[:16]}{Path(name).suffix}"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        values = json_object(read_content(path))
        version, files = values["format"], values["files"]
        wanted = _FILES[path.name]
        if not isinstance(files, dict) or files.keys() != wanted or not _are_texts(files.values()):
            raise ValueError(f"expected the SHA-256 of {', '.join(sorted(wanted))}")
        if _TAUGHT_BY in values:
            _check_teachers(values[_TAUGHT_BY])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"Cannot read {path}: {error!r}.") from error
    if version != _FORMAT:
        raise RunError(f"{path} has format {version}, this version reads {_FORMAT}: update sat_tf.")
    return values


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _check_teachers(values: Any) -> None:
    named = isinstance(values, dict) and set(values) == {"own", "inherited"}
    for own in values.values() if named else [None]:
        if not isinstance(own, list) or not all(isinstance(name, str) for name in own):
            raise ValueError(f"expected lists of names, `own` and `inherited`, in `{_TAUGHT_BY}`")


def _download(repo: str, revision: str | None) -> Path:
    """Returns the folder of the Hub's cache with a captioner, complete or from an earlier time."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise RunError(
            f"hf://{repo} needs huggingface_hub, which is not installed ({error}): "
            f"{installation('hub')}"
        ) from error
    try:
        wanted = [CARD, *RECORDS, *_FILES, *set().union(*_FILES.values())]
        folder = Path(snapshot_download(repo, revision=revision, allow_patterns=wanted))
    except (OSError, ValueError) as error:  # its own errors are among them
        reason = " ".join(str(error).split())
        raise RunError(f"hf://{repo} cannot be downloaded: {reason}") from error
    if not is_published(folder):
        raise RunError(f"hf://{repo} is not a model of sat_tf: it has no {MANIFEST}.")
    return folder
