"""Inputs of a split for a model: stored annotations, or images if its encoder is trained."""

from __future__ import annotations

from pathlib import Path

from sat_tf.layers.encoder import Encoder
from training.data.examples import Split
from training.data.image_loader import ImageSource, InputSource, check_first_readable


def open_input_source(
    encoder: Encoder,
    resize: str,
    split: Split,
    cache_dir: Path,
    mirrored: bool = False,
    random_crop: float = 0.0,
) -> InputSource:
    """Opens stored annotations if the encoder is frozen, otherwise images.

    Raises:
        DataError: No image of the split can be read.
    """
    examples = split.examples
    if not encoder.trainable:
        from training.data.feature_store import FeatureStore

        source = FeatureStore.open(cache_dir, encoder, examples, resize=resize, mirrored=mirrored)
    else:
        source = ImageSource(examples, encoder.image_size, resize, mirrored, random_crop)
    check_first_readable(split, source)
    return source
