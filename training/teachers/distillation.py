"""Predictions of captioners for every word of the training captions, kept for a student.

Only the likeliest words are kept, so that a data set of Flickr8k's size takes some 20 MB; the rest
of the probability is spread evenly over the vocabulary.

References:
    Hinton, Vinyals and Dean (2015), "Distilling the Knowledge in a Neural Network",
    arXiv:1503.02531.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from sat_tf.layers.encoder import Encoder
from sat_tf.objectives.likelihood import PREDICTED_SHARES, PREDICTED_WORDS
from sat_tf.text.vocabulary import Vocabulary
from sat_tf.util.files import write_atomically
from training.data.captions import CaptionTable
from training.data.examples import DataError
from training.data.image_loader import InputSource
from training.data.inputs import PREDICTIONS, Contents, Data, Lesson, Teacher

_FORMAT = 1
_DAMAGED = (OSError, ValueError, KeyError, TypeError, EOFError, AttributeError, zipfile.BadZipFile)


@dataclass(frozen=True, eq=False)
class WordPredictions:
    """The likeliest words at each place of each caption.

    Attributes:
        words: int32 `[N, J]`, ids; N counts the words of all captions, `<end>` included.
        shares: float16 `[N, J]`, their probabilities.
        offsets: int64 `[R + 1]`, first place of each caption.
        captions: Identity of the captions, see `captions_identity`.
    """

    words: np.ndarray
    shares: np.ndarray
    offsets: np.ndarray
    captions: str

    @property
    def specs(self) -> dict[str, tf.TensorSpec]:
        """Shape and dtype of `read`'s tensors, by name in a batch."""
        kept = [None, None, self.words.shape[1]]
        return {
            PREDICTED_WORDS: tf.TensorSpec(kept, tf.int32),
            PREDICTED_SHARES: tf.TensorSpec(kept, tf.float16),
        }

    def read(
        self, table: CaptionTable, rows: np.ndarray, words: int, mirrored: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """Reads words and shares of captions, `[n, words, J]` each, 0 on padding."""
        shape = len(rows), words, self.words.shape[1]
        ids, shares = np.zeros(shape, np.int32), np.zeros(shape, np.float16)
        for n, row in enumerate(rows):
            place = slice(self.offsets[row], self.offsets[row + 1])
            ids[n, : place.stop - place.start] = self.words[place]
            shares[n, : place.stop - place.start] = self.shares[place]
        return {PREDICTED_WORDS: ids, PREDICTED_SHARES: shares}

    def fingerprint(self) -> str:
        """Returns the SHA-256 (hexadecimal) of all predictions."""
        digest = hashlib.sha256(self.captions.encode())
        for array in (self.words, self.shares):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def save(self, path: Path) -> None:
        """Writes the predictions as a compressed `.npz`, with `about` as JSON."""
        about = {"format": _FORMAT, "captions": self.captions}
        arrays = {"words": self.words, "shares": self.shares, "offsets": self.offsets}
        arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        archive = io.BytesIO()
        np.savez_compressed(archive, **arrays)
        write_atomically(path, archive.getvalue())

    @classmethod
    def load(cls, path: Path, table: CaptionTable, vocabulary: Vocabulary) -> WordPredictions:
        """Reads the predictions of the words of a run's training captions.

        Raises:
            DataError: The file has none, or those of other captions or of another vocabulary.
        """
        try:
            with np.load(path, allow_pickle=False) as arrays:
                about = json.loads(arrays["about"].tobytes())
                if about["format"] != _FORMAT:
                    raise ValueError(f"its format is {about['format']}, not {_FORMAT}")
                words, shares, offsets = (arrays[name] for name in ("words", "shares", "offsets"))
            if words.ndim != 2 or words.shape != shares.shape or offsets[-1] != len(words):
                raise ValueError("its arrays do not fit each other")
            if not np.isfinite(shares).all():
                raise ValueError("its probabilities are not finite")
            found = cls(words, shares, offsets, str(about["captions"]))
        except _DAMAGED as error:
            holds = "does not hold predictions, as `python -m training.distill` writes them"
            raise DataError(f"{path} {holds}: {error}.") from error
        if found.captions != captions_identity(table, vocabulary):
            raise DataError(
                f"The predictions in {path} are of other captions, or of another vocabulary or "
                "length of captions: train with the `--data...` of the runs that made them."
            )
        return found


def caption_offsets(table: CaptionTable) -> np.ndarray:
    """Returns the first place of each caption among the words to predict, int64 `[R + 1]`."""
    return np.concatenate([[0], np.cumsum(table.lengths.astype(np.int64) - 1)])


def captions_identity(table: CaptionTable, vocabulary: Vocabulary) -> str:
    """Returns the SHA-256 (hexadecimal) of the captions as ids, their images and the vocabulary."""
    digest = hashlib.sha256(json.dumps(vocabulary.words).encode())
    for array in (table.image_index, table.lengths, table.tokens.flat):
        digest.update(np.ascontiguousarray(array, np.int32).data)
    return digest.hexdigest()


def prediction_teacher(file: Path, weight: float) -> Teacher:
    """Returns a teacher by predictions of training.distill, the share `weight` of each target."""

    def read(data: Data, encoder: Encoder, resize: str) -> Callable[[InputSource], Lesson]:
        found = WordPredictions.load(file, data.table, data.vocabulary)
        line = f"Other captioners' predictions are {100 * weight:.0f} % of each word's target."
        lesson = Lesson(PREDICTIONS, found, Contents(found.fingerprint()), line)
        return lambda source: lesson

    return read
