"""Maps that attention is to match at the words of phrases with boxes, one per word of a caption."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from sat_tf.layers.encoder import Encoder
from sat_tf.objectives.likelihood import ATTENTION_TARGETS
from training.data.boxes import PlacedBoxes, place_boxes, skipped_note
from training.data.captions import CaptionTable
from training.data.image_loader import InputSource
from training.data.inputs import BOXES, Contents, Data, Lesson, Teacher
from training.evaluation.pointing import union_coverage


@dataclass(frozen=True, eq=False)
class AttentionTargets:
    """Maps over the encoder's grid for the words of a split's captions.

    Attributes:
        maps: float16 `[P, h, w]`, each of sum 1: of boxes, their share of area in each cell.
        phrases: (image index, caption index) -> `(first word, last word, index into maps)`.
        skipped: Omissions, for a message.
    """

    maps: np.ndarray
    phrases: Mapping[tuple[int, int], Sequence[tuple[int, int, int]]]
    skipped: str

    def __len__(self) -> int:
        return sum(map(len, self.phrases.values()))

    @property
    def specs(self) -> dict[str, tf.TensorSpec]:
        """Shape and dtype of `read`'s tensors, by name in a batch."""
        cells = int(np.prod(self.maps.shape[1:]))
        return {ATTENTION_TARGETS: tf.TensorSpec([None, None, cells], tf.float16)}

    def read(
        self, table: CaptionTable, rows: np.ndarray, words: int, mirrored: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        """Reads the maps of captions, float16 `[n, words, h w]`; see `batches.Teaching`."""
        height, width = self.maps.shape[1:]
        targets = np.zeros([len(rows), words, height, width], np.float16)
        for n, row in enumerate(rows):
            place = int(table.image_index[row]), int(table.caption_index[row])
            last_word = len(table.tokens[row]) - 3  # <start> and <end> are not tokens
            for first, last, index in self.phrases.get(place, ()):
                target = self.maps[index]
                if mirrored is not None and mirrored[n]:
                    target = target[:, ::-1]
                targets[n, first : min(last, last_word) + 1] = target
        return {ATTENTION_TARGETS: targets.reshape(len(rows), words, height * width)}

    def fingerprint(self) -> str:
        """Returns the SHA-256 (hexadecimal) of all maps and of the words they belong to."""
        digest = hashlib.sha256(repr(sorted(self.phrases.items())).encode())
        digest.update(np.ascontiguousarray(self.maps).data)
        return digest.hexdigest()


def attention_targets(boxes: PlacedBoxes, grid: tuple[int, int]) -> AttentionTargets:
    """Turns boxes of phrases into maps over an encoder's grid, `(h, w)`."""
    maps, phrases = [], {}
    for place, shown in boxes.phrases.items():
        for one in shown:
            coverage = union_coverage(one.phrase.boxes, *grid)
            phrases.setdefault(place, []).append((one.first, one.last, len(maps)))
            maps.append((coverage / coverage.sum()).astype(np.float16))
    return AttentionTargets(np.stack(maps), phrases, skipped_note(boxes.skipped))


def box_teacher(file: Path | None) -> Teacher:
    """Returns a teacher of attention by boxes of phrases, a file's or drawn scenes'."""

    def read(data: Data, encoder: Encoder, resize: str) -> Callable[[InputSource], Lesson]:
        boxes = place_boxes(file, data.train, resize, data.vocabulary)
        found = attention_targets(boxes, encoder.grid)
        line = f"Attention is supervised at {len(found):,} phrases with boxes{found.skipped}."
        lesson = Lesson(BOXES, found, Contents(found.fingerprint()), line)
        return lambda source: lesson

    return read
