"""The captioner of a job: LiteRT graphs of a run, or a SavedModel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sat_tf.errors import invalid_value
from sat_tf.trained.lite.captioner import SETTINGS, VOCABULARY, is_export, newest, read_settings
from sat_tf.trained.runs import graphs_of
from serving.bulk.job import fingerprint
from serving.bulk.worker import NEEDED, SIGNATURE
from serving.versions import GRAPH_FILE, find_versions

_INPUT = "image_bytes"


@dataclass(frozen=True)
class Shipped:
    """A captioner as the engine copies it to every machine.

    Attributes:
        version: Number of an export's version; without one, the captioner's name.
        fingerprint: SHA-256 of what its captions depend on, or the name of its graphs in the cache.
        files: Paths below one folder there -> files here.
    """

    version: str
    fingerprint: str
    files: Mapping[str, Path]


def find_captioner(run_dir: Path, export: Path | None, maps: bool) -> Shipped:
    """Returns the captioner of a job; graphs are made, with TensorFlow, if there are none yet.

    Args:
        run_dir: See `sat_tf.load`; only read without `export`.
        export: Folder of a SavedModel, or of its versions.
        maps: Whether attention is asked for.

    Raises:
        ValueError: There is none; or it captions no image files, or has no attention.
    """
    if export is not None and not is_export(newest(export)):
        version = find_version(export)
        check_export(version, maps)
        variables = sorted((version / "variables").glob("*"))
        files = {str(path.relative_to(version)): path for path in version.rglob("*")}
        return Shipped(version.name, fingerprint([version / GRAPH_FILE, *variables]), files)
    found = graphs_of(run_dir if export is None else export)
    settings = read_settings(found.folder)
    if maps and settings.grid is None:
        raise invalid_value("--maps", "a captioner with attention", str(run_dir))
    paths = [*settings.files(found.folder).values()]
    paths += [found.folder / name for name in (SETTINGS, VOCABULARY)]
    files = {path.name: path for path in paths} | {**found.limits}
    return Shipped(found.name, found.fingerprint or fingerprint(paths), files)


def find_version(export: Path) -> Path:
    """Returns the folder of a version: the one given, or the newest in it.

    Raises:
        ValueError: There is none.
    """
    if (export / GRAPH_FILE).is_file():
        return export.resolve()
    found = find_versions(export) if export.is_dir() else {}
    if not found:
        inner = export / "export"
        expected = f"the folder of an export{f', such as {inner}' if inner.is_dir() else ''}"
        raise invalid_value("--export", expected, str(export))
    return found[max(found)].resolve()


def check_export(version: Path, maps: bool) -> None:
    """Checks that a version of an export captions image files, without loading it.

    Raises:
        ValueError: It has no `serving_default` from `image_bytes` to captions, or no attention.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    try:
        content = (version / GRAPH_FILE).read_bytes()
        model = saved_model_pb2.SavedModel.FromString(content)
    except DecodeError as error:
        raise invalid_value("--export", "a SavedModel", str(version)) from error
    if not model.meta_graphs:  # no byte at all is a message too
        raise invalid_value("--export", "a SavedModel", f"{version}, whose {GRAPH_FILE} is empty")
    signature = model.meta_graphs[0].signature_def[SIGNATURE]
    if list(signature.inputs) != [_INPUT] or not set(NEEDED) <= set(signature.outputs):
        inputs = ", ".join(signature.inputs) or "none"
        expected = f"an export whose `{SIGNATURE}` makes captions of `{_INPUT}`"
        raise invalid_value("--export", expected, f"{version} with the inputs {inputs}")
    if maps and "attention" not in signature.outputs:
        raise invalid_value("--maps", "an export with attention", str(version))
