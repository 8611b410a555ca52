"""Loads captioners of runs or published models: images in, captions out."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sat_tf.inference import published
from sat_tf.inference.captioning import TrainedCaptioner
from sat_tf.inference.confidence import read_limits
from sat_tf.inference.run_folder import RunFolder, read_config, read_vocabulary
from sat_tf.util.errors import RunError, installation
from sat_tf.util.fields import check_argument

if TYPE_CHECKING:
    from sat_tf.inference.keras_captioner import KerasCaptioner

Engine = Literal["keras", "litert"]

_LOG = logging.getLogger(__name__)


def load(run_dir: str | Path, engine: Engine | None = None) -> TrainedCaptioner:
    """Loads the best captioner of a run, or a published one.

    Args:
        run_dir: Folder written by `python -m training.train` or `python -m training.publish`; or
            `RUN/graphs`, anywhere; or the name of a pretrained captioner
            (`sat_tf.inference.published.names()`); or `hf://OWNER/NAME[@REVISION]` on the Hugging
            Face Hub.
        engine: `litert` captions over LiteRT graphs, without TensorFlow; `keras` over the Keras
            model, which evaluation and exports need. None takes the graphs of a folder if it has
            them and LiteRT is installed, else the model.

    Returns:
        A `LiteRTCaptioner` or a `KerasCaptioner`; neither needs the data set.

    Raises:
        RunError: The folder is not a run or a captioner, or its files do not fit each other; or the
            engine cannot be had.
    """
    path = published.locate(check_argument("run_dir", run_dir, str | Path))
    graphs = None if check_argument("engine", engine, Engine | None) == "keras" else _graphs(path)
    if graphs is not None and find_spec("ai_edge_litert") is not None:
        from sat_tf.inference.litert_captioner import LiteRTCaptioner

        return LiteRTCaptioner(graphs, None if graphs == path else path)
    if engine == "litert":
        how = f"has no graphs: `python -m serving.export_litert --run-dir {path}` makes them"
        need = how if graphs is None else "needs LiteRT: `pip install ai-edge-litert`"
        raise RunError(f"{path} {need}.")
    if graphs is not None:
        _LOG.warning("LiteRT is not installed: captions take TensorFlow, which is slow to start.")
    return load_captioner(path)


def _graphs(path: Path) -> Path | None:
    """Returns the folder of a captioner's graphs; None if it has none."""
    if published.manifest_of(path) is not None:
        return path if published.read_marker(path).precision is not None else None
    graphs = RunFolder(path).graphs
    return graphs if published.manifest_of(graphs) is not None else None


def load_captioner(run_dir: str | Path) -> KerasCaptioner:
    """Loads a captioner over its Keras model; see `load`."""
    path = published.locate(run_dir)
    if published.is_graphs(path):
        raise RunError(
            f"{path} holds graphs for captions and no weights: for anything else name the run, or "
            "the published captioner, that they were made of."
        )
    folder, is_run = RunFolder(path), published.manifest_of(path) is None
    files = {} if is_run else published.checked_files(path)
    config, vocabulary = read_config(folder), read_vocabulary(folder)
    if is_run and not folder.best_weights.is_file():
        raise folder.without_weights()
    try:
        from sat_tf.captioner import Captioner
        from sat_tf.inference.keras_captioner import KerasCaptioner
        from sat_tf.inference.weights import load_compact, load_weights
    except ModuleNotFoundError as error:
        if error.name not in ("tensorflow", "keras"):
            raise
        raise RunError(f"The model in {path} needs TensorFlow: {installation('train')}") from error
    model, digest = Captioner(config, len(vocabulary), False, dtype="float32"), None
    if is_run:
        digest = load_weights(model, folder.best_weights)
    else:
        load_compact(model, [files[name] for name in published.WEIGHTS.values()])
    return KerasCaptioner(model, vocabulary, path, digest, read_limits(path, digest))
