"""A captioner on a split: the captions that it writes."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from sat_tf.config import SearchConfig
from sat_tf.inference.captioning import TrainedCaptioner
from sat_tf.inference.captions import Caption
from training.data.examples import Split
from training.data.image_loader import InputSource, readable_images


class Captioning:
    """A captioner with the images of a split.

    Args:
        captioner: Trained captioner, or one in training.
        split: The captions as written.
        source: Images or annotations of the split.
    """

    def __init__(self, captioner: TrainedCaptioner, split: Split, source: InputSource) -> None:
        self.captioner, self.split, self.source = captioner, split, source

    def annotations(self, indices: np.ndarray) -> tf.Tensor | np.ndarray:
        """Reads or computes the annotations `[n, L, D]` of examples by index."""
        inputs = self.source.read(indices)
        return inputs if self.source.key == "annotations" else self.captioner.annotate(inputs)

    def captions(
        self, search: SearchConfig, batch_size: int = 50, count: int | None = None
    ) -> dict[str, Caption]:
        """Captions the readable images, or the first `count` of them, by image id."""
        readable = readable_images(self.split, self.source, count)
        captions = {}
        for start in range(0, len(readable), batch_size):
            indices = readable[start : start + batch_size]
            annotations = self.annotations(indices)
            ids = [self.split.examples[index].image_id for index in indices]
            captions |= dict(zip(ids, self.captioner.describe(annotations, search), strict=True))
        return captions
