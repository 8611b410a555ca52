"""Save predictions of captioners, to teach another one: `python -m training.distill RUN RUN ...`.

Writes the mean of their predictions for every word of the training captions. Then::

    python -m training.train ... --fit.distillation-weight 0.7 --fit.predictions FILE

trains a captioner that learns from captions and predictions alike.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tyro

from sat_tf.inference import published
from sat_tf.inference.run_folder import RunFolder
from sat_tf.util.commands import check_file, exit_status, loading, parse_flags, progress_bar
from sat_tf.util.errors import RunError, invalid_value
from sat_tf.util.fields import PositiveInt, check_fields
from sat_tf.util.files import default_cache_dir
from training.data.dataset import read_data_dir
from training.run.config import RunConfig, read_run_config
from training.run.decide import check_data_dir

if TYPE_CHECKING:
    from training.data.inputs import Data
    from training.teachers.distillation import WordPredictions

_BATCH = 64


@dataclass(frozen=True)
class Arguments:
    """Save what captioners predict for every word of the training captions."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Finished runs, or published captioners by folder or name, trained on the same captions."""
    out: Path = Path("predictions.npz")
    """The file to write, for --fit.predictions."""
    data_dir: Path | None = None
    """Your copy of the data set; the one that the first run was trained on by default."""
    cache_dir: Path | None = None
    """Feature stores; $SAT_TF_CACHE, $XDG_CACHE_HOME/sat_tf or ~/.cache/sat_tf by default."""
    words: PositiveInt = 20
    """Likeliest words to keep of each prediction."""

    def __post_init__(self) -> None:
        check_fields(self)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return exit_status(lambda: run(parse_flags(Arguments, argv, "training.distill")))


def run(arguments: Arguments) -> None:
    """Reads the training captions with every run and writes the mean of the predictions."""
    configs = check(arguments)
    with loading():
        from sat_tf.inference.run_folder import read_vocabulary
        from training.data.inputs import load_data
        from training.data.readers import Source

    folder = RunFolder(next(iter(configs)))
    of_run = configs[folder.path].data
    source = Source(of_run, arguments.data_dir or read_data_dir(folder))
    data = load_data(of_run, source, read_vocabulary(folder).words)
    found = predict(configs, data, arguments.cache_dir or default_cache_dir(), arguments.words)
    found.save(arguments.out)
    covered = float(found.shares.sum(axis=1, dtype="float64").mean())
    print(
        f"Wrote {arguments.out}: predictions of {len(configs)} captioners for {len(found.words):,} "
        f"words of {len(data.table):,} captions; the {found.words.shape[1]} likeliest words have "
        f"{100 * covered:.1f} % of the probability."
    )


def check(arguments: Arguments) -> dict[Path, RunConfig]:
    """Returns the configuration of each run, by folder, before TensorFlow is loaded."""
    if arguments.out.suffix != ".npz":
        raise invalid_value("--out", "a name that ends in .npz", arguments.out)
    folders = [published.locate(path) for path in arguments.runs]
    configs = {folder.resolve(): read_run_config(folder) for folder in folders}
    if not 1 <= len(folders) == len(configs):
        got = " ".join(map(str, arguments.runs)) or "none"
        raise invalid_value("runs", "one or more, all different", got)
    check_file("--out", arguments.out)
    first = next(iter(configs))
    check_data_dir(configs[first], arguments.data_dir or read_data_dir(RunFolder(first)))
    return configs


def predict(
    configs: Mapping[Path, RunConfig], data: Data, cache_dir: Path, words: int
) -> WordPredictions:
    """Returns the mean of the predictions of runs for every word of the training captions.

    A captioner that was trained on mirrored images predicts in both views: they show the same.
    """
    import tensorflow as tf

    from sat_tf.inference.load import load_captioner
    from training.data.batches import pad_tokens, scoring_plan
    from training.data.image_loader import Views
    from training.data.inputs import open_input_source
    from training.evaluation.reading import Reading
    from training.teachers.distillation import WordPredictions, caption_offsets, captions_identity

    readings, table = [], data.table
    for folder, config in configs.items():
        trained = load_captioner(folder)
        if trained.vocabulary != data.vocabulary:
            raise RunError(
                f"{folder} has another vocabulary than the training captions of the first run: "
                "train all runs on the same captions, with the same `--data...`."
            )
        views = config.encoder.resize, data.train, cache_dir, config.data.mirror
        source = open_input_source(trained.model.encoder, *views)
        readings.append(Reading(trained, data.train, source))
    offsets = caption_offsets(table)
    size = int(offsets[-1]), min(words, len(data.vocabulary))
    likeliest, shares = np.zeros(size, np.int32), np.zeros(size, np.float16)
    with progress_bar(len(table), "Predictions", "captions", True) as bar:
        for rows in scoring_plan(readings[0].source, table, _BATCH):
            tokens, predicted = pad_tokens([table.tokens[row] for row in rows]), []
            for reading in readings:
                source = reading.source
                for mirrored in (False, True)[: 1 + source.mirrored]:
                    views = Views(np.full(len(rows), mirrored), np.zeros([len(rows), 2]))
                    inputs = source.read(table.image_index[rows], views)
                    batch = {source.key: inputs, "tokens": tokens}
                    predicted.append(reading.probabilities(batch))
            top = tf.math.top_k(tf.add_n(predicted) / len(predicted), size[1])
            for row, *found in zip(rows, top.indices.numpy(), top.values.numpy(), strict=True):
                place = slice(offsets[row], offsets[row + 1])
                likeliest[place], shares[place] = (
                    part[: place.stop - place.start] for part in found
                )
            bar.update(len(rows))
    identity = captions_identity(table, data.vocabulary)
    return WordPredictions(likeliest, shares, offsets, identity)


if __name__ == "__main__":
    sys.exit(main())
