"""The attention figure of a caption, for TensorBoard, reports and the command line."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from sat_tf.figures.attention import attention_figure
from sat_tf.runs import Caption, Image, TrainedCaptioner
from sat_tf.vocabulary import END, START
from training.data.examples import StoredImage


def figure_of(
    captioner: TrainedCaptioner,
    image: Image | StoredImage,
    caption: Caption,
    chosen: np.ndarray | None = None,
) -> np.ndarray:
    """Draws attention under each word over the encoder's input; the input alone without it.

    `chosen` is what `chosen_locations` returns, if hard attention chose locations.

    Returns:
        uint8 `[H, W, 3]`.
    """
    if isinstance(image, StoredImage):
        image = image.read_bytes()
    pixels = np.round(captioner.pixels(image).numpy()).astype(np.uint8)
    maps = caption.alpha, caption.beta
    return attention_figure(pixels, caption.words, *maps, title=caption.text, chosen=chosen)


def chosen_locations(
    captioner: TrainedCaptioner, annotations: tf.Tensor, caption: Caption
) -> np.ndarray | None:
    """Returns the location that hard attention chose for each word of a caption, int `[T]`.

    A drawn location is recovered by its log-probability: teacher forcing draws those of a search
    with a beam of 1 again.

    Args:
        captioner: The captioner that wrote the caption.
        annotations: `[1, L, D]`, of the image.
        caption: Its caption.

    Returns:
        Indices of locations, row by row; None if none was chosen.
    """
    selection = captioner.model.selection
    if caption.alpha is None or selection == "expectation" or not caption.words:
        return None
    if selection == "argmax":
        return caption.alpha.reshape(len(caption.words), -1).argmax(-1)
    words = [captioner.vocabulary.id(word) for word in caption.words]
    batch = {"annotations": annotations, "tokens": tf.constant([[START, *words, END]])}
    output = captioner.model(batch, seed=tf.zeros([2], tf.int32))
    log_alpha = tf.nn.log_softmax(output.alignment_scores)[0, : len(words)].numpy()
    drawn = output.log_prob[0, : len(words), tf.newaxis].numpy()
    return np.abs(log_alpha - drawn).argmin(-1)
