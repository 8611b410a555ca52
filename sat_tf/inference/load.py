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
from sat_tf.util.files import sha256_of

if TYPE_CHECKING:
    from sat_tf.inference.keras_captioner import KerasCaptioner
    from sat_tf.inference.litert_captioner import LiteRTCaptioner

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
        return _over_graphs(path, graphs)
    if engine == "litert":
        if graphs is None:
            raise RunError(f"{path} has no graphs: {_how_to_make(path)}")
        raise RunError(f"The graphs in {path} need LiteRT: `pip install ai-edge-litert`.")
    if graphs is not None:
        _LOG.warning("LiteRT is not installed: captions take TensorFlow, which is slow to start.")
    return load_captioner(path)


def _graphs(path: Path) -> Path | None:
    """Returns the folder of a captioner's graphs; None if it has none."""
    if published.manifest_of(path) is not None:
        marker = published.read_marker(path)
        return path if marker.precision is not None else None
    graphs = RunFolder(path).graphs
    return graphs if (graphs / published.MANIFEST).is_file() else None


def _over_graphs(path: Path, graphs: Path) -> LiteRTCaptioner:
    """Opens graphs; those of a run are held against its weights and words."""
    from sat_tf.inference.litert_captioner import LiteRTCaptioner

    captioner = LiteRTCaptioner(graphs)
    if graphs == path:
        return captioner
    folder, marker = RunFolder(path), published.read_marker(graphs)
    digest, words = folder.weights_sha256(), published.VOCABULARY
    found = {"weights": digest, "words": sha256_of(folder.vocabulary)}
    expected = {"weights": marker.made_of, "words": marker.files.get(words)}
    for name in found:
        if found[name] != expected[name]:
            raise RunError(f"{graphs} is of other {name} than the run: {_how_to_make(path)}")
    captioner.path, captioner.weights_sha256 = path, digest
    captioner.limits = read_limits(path, digest)
    return captioner


def _how_to_make(path: Path) -> str:
    return f"`python -m serving.export_litert --run-dir {path}` makes them."


def load_captioner(run_dir: str | Path) -> KerasCaptioner:
    """Loads a captioner over its Keras model; see `load`."""
    path = published.locate(run_dir)
    if published.manifest_of(path) and published.is_graphs(path):
        raise RunError(published.without_weights(path))
    if not (path / published.CONFIG).is_file() and any(path.glob("*/saved_model.pb")):
        raise RunError(f"{path} holds SavedModels for TensorFlow Serving: name their run.")
    folder, is_run = RunFolder(path), not published.is_published(path)
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
    model = Captioner(config, len(vocabulary), load_encoder_weights=False, dtype="float32")
    digest = None
    if is_run:
        digest = load_weights(model, folder.best_weights)
    else:
        load_compact(model, [files[name] for name in published.WEIGHTS.values()])
    return KerasCaptioner(model, vocabulary, path, digest, read_limits(path, digest))
