"""Folders of models: a marker file names kind and version, and hashes the other files.

    captioner.json      marker
    config.json, vocabulary.json
    encoder.npz, decoder.npz               weights of a published captioner, and the rest of its
    encoder.graph.npz, start.graph.npz, step.graph.npz                    graphs, see `packing`
    encoder.tflite, start.tflite, step.tflite   of `RUN/graphs`: graphs alone, see `graphs`
    familiarity.json, confidence.json      its limits
    README.md                              the card, which is not hashed

Published captioners in one folder share an encoder as `encoder-HASH.npz` next to their folders.
A run has no marker: it is in training, or may be trained further. Imports no TensorFlow.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from sat_tf.util.errors import RunError, installation
from sat_tf.util.files import json_object, read_content, write_atomically, write_json

SHIPPED = Path(__file__).parents[1] / "captioners"
"""Folder of the pretrained captioners."""

DEFAULT = "photos_soft"
"""The captioner of commands and of the page, which shows it first."""

MANIFEST, CARD = "captioner.json", "README.md"
CONFIG, VOCABULARY = "config.json", "vocabulary.json"
FAMILIARITY, CONFIDENCE = "familiarity.json", "confidence.json"
"""Limits of a captioner, see `confidence`, if it has learned them."""
WEIGHTS = {"encoder": "encoder.npz", "decoder": "decoder.npz"}
"""Files of the weights, by part of the captioner."""
PARTS = ("encoder", "start", "step")
"""The graphs of a captioner, see `graphs.make_graphs`."""
GRAPHS = tuple(f"{part}.tflite" for part in PARTS)
TEMPLATES = tuple(f"{part}.graph.npz" for part in PARTS)
"""Files of the graphs without their weights, see `unpacking.assemble`."""

_FORMAT = 2
_SHARED = (WEIGHTS["encoder"], TEMPLATES[0], FAMILIARITY)
# `Path` turns the two slashes of hf:// into one.
_HUB = re.compile(r"hf:/{1,2}(?P<repo>[^/@]+/[^/@]+)(?:@(?P<revision>.+))?")


@dataclasses.dataclass(frozen=True)
class Marker:
    """Marker of a folder.

    Attributes:
        files: SHA-256 (hexadecimal) of each file.
        precision: Of the graphs' weights: `float32`, `float16` or `int8`; None without graphs.
        grid: `(h, w)` of the attention maps; None without graphs, or without attention.
        made_of: SHA-256 of the run's weights that graphs alone were made of.
        taught_by: Teachers of a published captioner, under `own`.
        format: Version of the layout.
    """

    files: dict[str, str]
    precision: str | None = None
    grid: tuple[int, int] | None = None
    made_of: str | None = None
    taught_by: dict[str, list[str]] | None = None
    format: int = _FORMAT

    def __post_init__(self) -> None:
        names = isinstance(self.files, dict) and all(
            isinstance(value, str) and Path(name).name == name for name, value in self.files.items()
        )
        sides = (1, 1) if self.grid is None else tuple(self.grid)
        if not names or len(sides) != 2 or not all(type(n) is int and n > 0 for n in sides):
            raise ValueError("its values are damaged")
        object.__setattr__(self, "grid", None if self.grid is None else sides)

    def to_values(self) -> dict[str, Any]:
        """Returns the content for JSON, with a checksum of the rest."""
        values = {k: v for k, v in dataclasses.asdict(self).items() if v is not None}
        return values | {"sha256": _checksum(values)}


def _checksum(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def read_marker(folder: Path) -> Marker:
    """Reads the marker of a folder.

    Raises:
        RunError: It has none, a damaged one, or one of another version.
    """
    path = manifest_of(folder) or folder / MANIFEST
    try:
        values = json_object(read_content(path))
        if (version := values.get("format")) != _FORMAT:
            raise RunError(
                f"{path} has the format {str(version)[:20]}, and this version of sat_tf reads "
                f"{_FORMAT}: make the folder again, or install the version that wrote it."
            )
        if values.pop("sha256", None) != _checksum(values):
            raise ValueError("its checksum differs")
        return Marker(**values)
    except FileNotFoundError as error:
        raise RunError(f"{folder} has no {path.name}, which says what a folder is.") from error
    except RunError:
        raise
    except (OSError, ValueError, TypeError) as error:
        why = str(error).rstrip(".")
        raise RunError(
            f"{path} is damaged ({why}): copy or make the whole folder again."
        ) from error


def names() -> list[str]:
    """Lists the pretrained captioners, the default one first."""
    found = sorted(path.parent.name for path in SHIPPED.glob(f"*/{MANIFEST}"))
    return sorted(found, key=lambda name: name != DEFAULT)


def read_card(folder: Path) -> str:
    """Reads the card of a published model; empty if it has none."""
    path = folder / CARD
    return path.read_text("utf-8") if path.is_file() else ""


def knows(folder: Path) -> str:
    """Returns a published captioner's sentence on its domain; empty if its card has none."""
    found = re.search(r"^## What it knows\n+(.+)", read_card(folder), re.MULTILINE)
    return found[1].strip() if found else ""


def locate(name: str | Path) -> Path:
    """Returns the folder of a run or of a model.

    Args:
        name: A folder; or the name of a pretrained model; or `hf://OWNER/NAME[@REVISION]`, which
            the Hugging Face Hub's client downloads unless its cache has it.

    Raises:
        RunError: There is none.
    """
    hub = _HUB.fullmatch(str(name))
    if hub is not None:
        return _download(**hub.groupdict())
    path = Path(name)
    if path.exists():
        return path
    known = names()
    if str(name) in known:
        return SHIPPED / name
    close = difflib.get_close_matches(str(name), known, n=1)
    meant = f"did you mean {close[0]}?" if close else ", ".join(known)
    raise RunError(f"There is no run folder {name}, and no pretrained model of that name: {meant}")


def _download(repo: str, revision: str | None) -> Path:
    """Returns the folder of a model in the cache of the Hub's client."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise RunError(f"hf://{repo} needs huggingface_hub: {installation('hub')}") from error
    try:
        kinds = ["*.json", "*.npz", "*.tflite", CARD]
        folder = Path(snapshot_download(repo, revision=revision, allow_patterns=kinds))
    except (OSError, ValueError) as error:  # its own errors are among them
        reason = " ".join(str(error).split())
        raise RunError(f"hf://{repo} cannot be downloaded: {reason}") from error
    if manifest_of(folder) is None:
        raise RunError(f"hf://{repo} is not a model of sat_tf: it has no {MANIFEST}.")
    return folder


def output_dir(name: str | Path) -> Path:
    """Returns the folder for evaluations and exports of a run or published model.

    It is the folder itself, or `captioners/NAME` for a pretrained one or one of the Hub.
    """
    path, hub = Path(name), _HUB.fullmatch(str(name))
    if path.exists():
        return path
    return Path("captioners") / Path(hub["repo"] if hub else path).name


def bare_name(name: str) -> str:
    """Returns what `locate` takes without the folders of a machine: a path's last part."""
    return name if _HUB.fullmatch(name) else Path(name).name


def manifest_of(folder: Path) -> Path | None:
    """Returns the marker of a folder; None for a run, which has none."""
    return folder / MANIFEST if (folder / MANIFEST).is_file() else None


def is_published(folder: Path) -> bool:
    """Returns True if a folder has a marker, and weights rather than graphs alone."""
    return manifest_of(folder) is not None and not is_graphs(folder)


def is_graphs(folder: Path) -> bool:
    """Returns True if a folder has a marker, and graphs without the weights of a model."""
    return manifest_of(folder) is not None and GRAPHS[0] in read_marker(folder).files


def checked_files(folder: Path, names: Collection[str] | None = None) -> dict[str, Path]:
    """Returns files of a model by name, all by default, each equal to its SHA-256.

    Raises:
        RunError: The marker or a file is missing, damaged or of another version.
    """
    files = read_marker(folder).files
    wanted = files if names is None else files.keys() & names
    return {name: _checked(folder, name, files[name])[0] for name in wanted}


def checked_content(folder: Path, name: str) -> bytes:
    """Returns the content of a file of a model, equal to its SHA-256; see `checked_files`."""
    files = read_marker(folder).files
    if name not in files:
        raise RunError(f"{folder} has no {name}: publish the captioner again.")
    return _checked(folder, name, files[name])[1]


def _checked(folder: Path, name: str, expected: str) -> tuple[Path, bytes]:
    """Returns place and content of a file, which neighbours of the folder may share."""
    path = folder / name
    if not path.is_file():
        path = _shared(folder, name, expected)
    try:
        content = read_content(path)
    except (OSError, ValueError) as error:
        raise RunError(f"{folder} is incomplete: it has no {name} that can be read.") from error
    if (found := _sha256(content)) != expected:
        raise RunError(
            f"{path} is damaged or was changed: expected the SHA-256 {expected[:12]}..., got "
            f"{found[:12]}... Copy, publish, download or install the folder again."
        )
    return path, content


def taught_by(folder: Path) -> list[str]:
    """Returns the other teachers of a published captioner, from its marker."""
    return (read_marker(folder).taught_by or {}).get("own", [])


def write(
    folder: Path,
    contents: Mapping[str, bytes],
    share_encoder: bool = False,
    teachers: Sequence[str] | None = None,
    **facts: Any,
) -> None:
    """Writes the files of a model, the marker last.

    Args:
        folder: A new folder, or one to be replaced.
        contents: The bytes of each file.
        share_encoder: Write the encoder's files next to the folder, for its neighbours.
        teachers: What taught a captioner other than captions: boxes, captioners, reward.
        **facts: The other attributes of `Marker`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.suffix in (".npz", ".json", ".tflite"):
            path.unlink()
    hashes = {name: _sha256(content) for name, content in contents.items()}
    for name, content in contents.items():
        shared = share_encoder and name in _SHARED
        write_atomically(_shared(folder, name, hashes[name]) if shared else folder / name, content)
    marker = Marker(hashes, taught_by=None if teachers is None else {"own": [*teachers]}, **facts)
    write_json(folder / MANIFEST, marker.to_values())


def _shared(folder: Path, name: str, sha256: str) -> Path:
    stem, *rest = name.split(".")
    return folder.absolute().parent / ".".join([f"{stem}-{sha256[:16]}", *rest])


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
