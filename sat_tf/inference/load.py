"""Loads captioners by the name of a run or of a published model: images in, captions out."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sat_tf.config import CaptionerConfig
from sat_tf.inference import cache, published
from sat_tf.inference.captioning import TrainedCaptioner
from sat_tf.inference.confidence import limit_files, limit_paths, read_limits
from sat_tf.inference.litert_captioner import LiteRTCaptioner, is_export, newest
from sat_tf.inference.litert_captioner import load as load_export
from sat_tf.inference.run_folder import RunFolder, read_config, read_vocabulary
from sat_tf.text.vocabulary import Vocabulary
from sat_tf.util.errors import RunError
from sat_tf.util.fields import check_argument
from sat_tf.util.files import sha256_of

if TYPE_CHECKING:
    from sat_tf.captioner import Captioner


_BYTES_PER_WEIGHT = 4  # of a run's file, which is not compressed


def load(run_dir: str | Path) -> TrainedCaptioner:
    """Loads the best captioner of a run, or a published one.

    It does without TensorFlow as long as nothing needs the model: it captions over LiteRT graphs
    from the cache. Where there are none yet, TensorFlow captions, and the first caption has them
    made by another process.

    Args:
        run_dir: Folder written by `python -m training.train`, `python -m training.publish` or
            `python -m serving.export_litert`, of which the last needs no TensorFlow; or
            the name of a captioner that ships (`sat_tf.inference.published.names()`); or
            `hf://OWNER/NAME[@REVISION]` on the Hugging Face Hub.

    Returns:
        A `TrainedCaptioner`, which needs neither the data set nor the encoder's weights file.

    Raises:
        RunError: The folder is not a run, or its files do not fit each other.
    """
    path = _located(check_argument("run_dir", run_dir, str | Path))
    if is_export(path):
        source = _Source.exported(path)
        return TrainedCaptioner(source, source.vocabulary, path, None, source.export)
    source = _Source.read(path)
    if not cache.usable(source.config):
        return source.load()
    digest = source.digest()
    graphs = cache.find(source.fingerprint(digest))
    if graphs is not None:
        return TrainedCaptioner(source, source.vocabulary, source.path, digest, graphs)
    captioner = source.load()
    name = source.fingerprint(captioner.weights_sha256)
    making = [sys.executable, "-m", __name__, str(source.path.absolute())]
    captioner.after_first_caption = functools.partial(cache.make_behind, making, name)
    return captioner


def load_captioner(run_dir: str | Path) -> TrainedCaptioner:
    """Loads a captioner with its model; see `load`."""
    return _Source.read(_located(run_dir)).load()


def graphs_missing(run_dir: str | Path) -> bool:
    """Returns whether `load` would caption by graphs if they were made."""
    path = _located(run_dir)
    if is_export(path):
        return False
    source = _Source.read(path)
    return cache.usable(source.config) and cache.missing(source.fingerprint(source.digest()))


def make_graphs(*run_dirs: str | Path) -> list[Path | None]:
    """Makes the graphs that `load` captions with, where they are not there yet.

    Captioners with the same encoder share its graph. Waits for another process that makes graphs.

    Returns:
        The folder of each captioner's graphs; None if LiteRT cannot hold it.
    """
    folders = []
    with cache.turn():
        for run_dir in run_dirs:
            source = _Source.read(_located(run_dir))
            if (folder := cache.folder_of(source.fingerprint(source.digest()))) is None:
                captioner = source.load()
                folder = cache.make(captioner, source.fingerprint(captioner.weights_sha256))
            folders.append(folder)
    return folders


class Graphs(NamedTuple):
    """Graphs of a captioner on this machine.

    Attributes:
        folder: The folder, see `sat_tf.inference.load`.
        name: Number of an export's version; without one, the captioner's name.
        fingerprint: Name of what they were made of; None for an export.
        limits: Files of what the captioner knows of its limits, by name.
    """

    folder: Path
    name: str
    fingerprint: str | None
    limits: Mapping[str, Path]


def graphs_of(run_dir: str | Path) -> Graphs:
    """Returns the graphs that `load` captions with, made if they are not there yet.

    Raises:
        RunError: As `load`; or LiteRT cannot hold the captioner.
    """
    path = _located(run_dir)
    if is_export(path):
        return Graphs(path, path.resolve().name, None, limit_paths(path))
    source = _Source.read(path)
    digest = source.digest()
    read_limits(path, digest)
    (folder,) = make_graphs(path) if cache.usable(source.config) else (None,)
    if folder is None:
        raise RunError(
            f"{path} cannot caption without TensorFlow: LiteRT is not installed, is switched off, "
            "or cannot hold it. Export it as a SavedModel."
        )
    return Graphs(folder, path.resolve().name, source.fingerprint(digest), limit_files(path))


def _located(run_dir: str | Path) -> Path:
    """Returns a captioner's folder; of the versions of a LiteRT export, the newest one's."""
    path = published.locate(run_dir)
    return version if is_export(version := newest(path)) else path


@dataclass(frozen=True)
class _Source:
    """A folder with a captioner: its configuration and words; the weights are read when needed."""

    path: Path
    config: CaptionerConfig
    vocabulary: Vocabulary
    is_run: bool
    export: LiteRTCaptioner | None = None

    @classmethod
    def read(cls, path: Path) -> _Source:
        """Reads and checks all but the weights, for a folder that has some."""
        if is_export(path):
            raise _without_weights(path)
        if not (path / published.CONFIG).is_file() and any(path.glob("*/saved_model.pb")):
            raise RunError(f"{path} holds SavedModels for TensorFlow Serving: name their run.")
        folder, is_run = RunFolder(path), not published.is_published(path)
        if not is_run:
            published.checked_files(path, (published.CONFIG, published.VOCABULARY))
        config, vocabulary = read_config(folder), read_vocabulary(folder)
        if is_run and not folder.best_weights.is_file():
            raise folder.without_weights()
        return cls(path, config, vocabulary, is_run)

    @classmethod
    def exported(cls, path: Path) -> _Source:
        """Opens a LiteRT export."""
        try:
            export = load_export(path, cache.threads())
        except ImportError as error:
            raise RunError(f"{path} holds LiteRT graphs. {error}") from error
        return cls(path, _exported_config(path, export), export.vocabulary, False, export)

    def load(self) -> TrainedCaptioner:
        """Loads the captioner with its model."""
        model, digest = self.load_model()
        return TrainedCaptioner(model, self.vocabulary, self.path, digest)

    def digest(self) -> str | None:
        """Returns the SHA-256 of a run's weights."""
        return sha256_of(RunFolder(self.path).best_weights) if self.is_run else None

    def fingerprint(self, digest: str | None) -> str:
        """Returns the name of the graphs in the cache, of a run's weights with this SHA-256."""
        if self.is_run:
            hashes = [digest]
        else:
            hashes = [*published.weight_hashes(self.path), cache.precision_of(self.path)]
        return cache.fingerprint(self.config, self.vocabulary, hashes)

    def load_model(self) -> tuple[Captioner, str | None]:
        """Loads the model with TensorFlow; returns it with the SHA-256 of a run's weights."""
        if self.export is not None:
            raise _without_weights(self.path)
        try:
            from sat_tf.captioner import Captioner
            from sat_tf.inference.weights import (
                count_weights,
                load_compact,
                load_weights,
                make_fitting,
            )
        except ModuleNotFoundError as error:
            if error.name not in ("tensorflow", "keras"):
                raise
            raise RunError(
                f"{self.path}: without {error.name} there are captions alone, and those by graphs "
                "that it makes once: `pip install tensorflow keras`. A wheel of `make wheel` and "
                "an export for LiteRT have graphs already."
            ) from error
        make = functools.partial(
            Captioner,
            self.config,
            len(self.vocabulary),
            load_encoder_weights=False,
            dtype="float32",
        )
        if self.is_run:
            path = RunFolder(self.path).best_weights
            model = make_fitting(make, path.stat().st_size // _BYTES_PER_WEIGHT, path)
            return model, load_weights(model, path)
        files = published.checked_files(self.path)
        paths = [files[name] for name in published.WEIGHTS.values()]
        model = make_fitting(make, count_weights(paths), self.path)
        load_compact(model, paths)
        return model, None


def _without_weights(path: Path) -> RunError:
    return RunError(
        f"{path} holds graphs for captions without TensorFlow, and no weights: for anything else "
        "name the run, or a captioner of a checkout, that they were made of."
    )


def _exported_config(path: Path, export: LiteRTCaptioner) -> CaptionerConfig:
    """Returns the configuration of a LiteRT export; the search is its own."""
    made, config = export.settings, read_config(path)
    same = (config.encoder.image_size, config.encoder.resize, config.attention.kind == "none")
    if same != (made.image_size, made.resize, made.grid is None):
        raise RunError(f"The files in {path} do not fit each other: export the run again.")
    return dataclasses.replace(config, search=made.search)


if __name__ == "__main__":
    if hasattr(os, "nice"):
        os.nice(10)
    make_graphs(*sys.argv[1:])
