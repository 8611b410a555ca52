"""A folder of graphs, `RUN/graphs`, that captions anywhere; written without TensorFlow."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from sat_tf.config import SearchConfig
from sat_tf.inference import published
from sat_tf.inference.captioning import TrainedCaptioner
from sat_tf.inference.confidence import limit_files
from sat_tf.inference.litert_captioner import LiteRTCaptioner, graph_files
from sat_tf.inference.run_folder import RunFolder, data_of
from sat_tf.util.fields import to_dict


def write_folder(
    folder: Path,
    captioner: TrainedCaptioner,
    graphs: Mapping[str, bytes],
    precision: str,
    search: SearchConfig | None = None,
) -> None:
    """Writes graphs with configuration, words and limits of their captioner, the marker last.

    Args:
        folder: A new folder, or one of graphs, which are replaced.
        captioner: The captioner.
        graphs: Content of its graphs, by file.
        precision: Of their weights.
        search: The default search; None for the captioner's.

    Raises:
        OSError: There is no room for them: the folder has no marker then.
    """
    config = dataclasses.replace(captioner.config, search=search or captioner.config.search)
    values, words = to_dict(config), (captioner.vocabulary.to_json() + "\n").encode()
    values["encoder"]["weights"] = None  # a path of the machine
    limits: dict[str, Path] = {}
    if captioner.path is not None:
        run, limits = RunFolder(captioner.path), limit_files(captioner.path)
        words, data = run.vocabulary.read_bytes(), data_of(run.config)
        values["data"] = {key: data[key] for key in ("name", "language") if key in data}
    files = {name: path.read_bytes() for name, path in limits.items()}
    files |= {
        published.CONFIG: (json.dumps(values, indent=1) + "\n").encode(),
        published.VOCABULARY: words,
    }
    grid = captioner.grid if config.attention.kind != "none" else None
    made_of = captioner.weights_sha256
    facts = {"precision": precision, "grid": grid, "made_of": made_of}
    published.write(folder, {**graphs, **files}, **facts)


def copy_graphs(captioner: LiteRTCaptioner, folder: Path) -> None:
    """Writes the graphs of an open captioner as such a folder; see `write_folder`."""
    write_folder(folder, captioner, graph_files(captioner.folder), captioner.precision)


def renew_limits(run: RunFolder) -> None:
    """Gives the graphs of a run, if it has some, the limits that the run has learned since."""
    if published.manifest_of(run.graphs) is None:
        return
    marker, limits = published.read_marker(run.graphs), limit_files(run.path)
    files = {name: path.read_bytes() for name, path in limits.items()}
    for name in marker.files.keys() - files.keys():
        files[name] = published.checked_content(run.graphs, name)
    facts = {"precision": marker.precision, "grid": marker.grid, "made_of": marker.made_of}
    published.write(run.graphs, files, **facts)
