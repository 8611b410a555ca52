"""Predictions of trained captioners for the words of the training captions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from sat_tf import runs
from sat_tf.errors import RunError
from sat_tf.progress import progress_bar
from training.config import RunConfig
from training.data.batches import scoring_plan
from training.data.bucketing import pad_tokens
from training.data.image_loader import Views
from training.data.input_source import open_input_source
from training.evaluate.likelihood import TeacherForcing
from training.inputs import Data
from training.lineage import teachers_of
from training.teach.word_predictions import WordPredictions, caption_offsets, captions_identity

_BATCH = 64


class Teacher:
    """A captioner with the inputs that it reads.

    Args:
        folder: The run.
        config: Its configuration.
        data: The training captions.
        cache_dir: Feature stores.

    Raises:
        RunError: Its vocabulary is not that of the captions.
        DataError: No image can be read.
    """

    def __init__(self, folder: Path, config: RunConfig, data: Data, cache_dir: Path) -> None:
        trained = runs.load_captioner(folder)
        if trained.vocabulary != data.vocabulary:
            raise RunError(
                f"{folder} has another vocabulary than the training captions of the first run: "
                "train all runs on the same captions, with the same `--data...`."
            )
        encoder, resize = trained.model.encoder, config.encoder.resize
        self.forced = TeacherForcing(trained)
        self.source = open_input_source(encoder, resize, data.train, cache_dir, config.data.mirror)

    def probabilities(self, images: np.ndarray, tokens: np.ndarray) -> Iterator[tf.Tensor]:
        """Yields the probabilities `[n, T, K]` of the words of captions in each view.

        Views are plain, and mirrored, too, if training saw them: they show the same things.

        Args:
            images: `[n]`, indices of the training images.
            tokens: int32 `[n, T + 1]`.
        """
        for mirrored in (False, True)[: 1 + self.source.mirrored]:
            views = Views(np.full(len(images), mirrored), np.zeros([len(images), 2]))
            inputs = self.source.read(images, views)
            yield self.forced.probabilities({self.source.key: inputs, "tokens": tokens})


def predict(
    configs: Mapping[Path, RunConfig], data: Data, cache_dir: Path, words: int
) -> WordPredictions:
    """Returns the mean of the predictions of runs for every word of the training captions.

    Args:
        configs: Configuration of each run, by its folder.
        data: The data of the first one.
        cache_dir: Feature stores.
        words: Likeliest words to keep.

    Raises:
        RunError: The vocabulary of a run is not that of the captions.
        DataError: No image can be read.
    """
    teachers = [Teacher(folder, config, data, cache_dir) for folder, config in configs.items()]
    table, offsets = data.table, caption_offsets(data.table)
    size = int(offsets[-1]), min(words, len(data.vocabulary))
    found = WordPredictions(
        np.zeros(size, np.int32),
        np.zeros(size, np.float16),
        offsets,
        captions_identity(table, data.vocabulary),
        tuple(dict.fromkeys(name for folder in configs for name in teachers_of(folder).all)),
    )
    with progress_bar(len(table), "Predictions", "captions", True) as bar:
        for rows in scoring_plan(teachers[0].source, table, _BATCH):
            tokens = pad_tokens([table.tokens[row] for row in rows])
            top = likeliest_words(teachers, table.image_index[rows], tokens, size[1])
            for n, row in enumerate(rows):
                place = slice(offsets[row], offsets[row + 1])
                length = place.stop - place.start
                found.words[place], found.shares[place] = (part[n, :length] for part in top)
            bar.update(len(rows))
    return found


def likeliest_words(
    teachers: Sequence[Teacher], images: np.ndarray, tokens: np.ndarray, words: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the likeliest words of the mean prediction, and their probabilities, `[n, T, J]`."""
    found = [view for teacher in teachers for view in teacher.probabilities(images, tokens)]
    top = tf.math.top_k(tf.add_n(found) / len(found), words)
    return top.indices.numpy(), top.values.numpy()
