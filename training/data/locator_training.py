"""Training of a word locator: a classifier of the words that an image's captions have.

See `training.data.word_locator` for what it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf

from sat_tf.layers.encoder import Encoder
from sat_tf.progress import progress_bar
from training.data.examples import DataError, Example
from training.data.input_source import InputSource
from training.data.word_locator import WordLocator, encoder_identity, words_of

_COMMON = 0.5
"""Words of more than this share of the images tell nothing about a place."""
_BATCH = 32


def words_to_locate(examples: Sequence[Example], min_images: int) -> tuple[str, ...]:
    """Returns the words of at least `min_images` images, but at most half of them, sorted."""
    counts: dict[str, int] = {}
    for example in examples:
        for word in words_of(example):
            counts[word] = counts.get(word, 0) + 1
    most = _COMMON * len(examples)
    return tuple(sorted(word for word, n in counts.items() if min_images <= n <= most))


def learn(
    encoder: Encoder,
    examples: Sequence[Example],
    source: InputSource,
    *,
    min_images: int = 10,
    min_auroc: float = 80.0,
    epochs: int = 5,
    learning_rate: float = 3e-3,
    seed: int = 0,
) -> tuple[WordLocator, dict[str, float]]:
    """Learns where words are.

    Args:
        encoder: The frozen encoder whose annotations `source` holds.
        examples: The training images with their captions.
        source: Their annotations.
        min_images: Fewest images whose captions have a word.
        min_auroc: Words that an image tells less well than this are left out.
        epochs: Passes over the images.
        learning_rate: Of AdamW, on a cosine schedule.
        seed: Seed of the order.

    Returns:
        The locator; and of all words tried, word -> how well the classifier tells the training
        images that have it from the others: area under the ROC curve, 0 to 100.

    Raises:
        DataError: No word is in enough images, or none can be told from an image.
    """
    readable = np.array([n for n in range(len(examples)) if n not in source.skipped])
    words = words_to_locate([examples[n] for n in readable], min_images)
    if not words:
        raise DataError(f"No word is in the captions of {min_images} images or more.")
    present = _presence(examples, words)
    height, width = encoder.grid
    model = _Classifier(encoder.annotation_dim, height * width, present[readable].mean(axis=0))
    steps = epochs * -(-len(readable) // _BATCH)
    optimizer = keras.optimizers.AdamW(
        keras.optimizers.schedules.CosineDecay(learning_rate, steps), weight_decay=1e-4
    )
    train_step = model.compiled_step(optimizer)
    with progress_bar(epochs * len(readable), "Words", "images", True) as bar:
        for epoch in range(epochs):
            order = np.random.default_rng([seed, epoch]).permutation(readable)
            for chosen in _parts(order):
                train_step(source.read(chosen), present[chosen])
                bar.update(len(chosen))
    areas = _auroc(_scores(model, source, readable), present[readable] > 0)
    kept = [number for number, area in enumerate(areas) if area >= min_auroc]
    if not kept:
        raise DataError("The annotations do not tell any word from the others.")
    kernel = model.kernel.numpy()[:, kept]
    known, prior = tuple(words[n] for n in kept), model.prior.numpy()
    locator = WordLocator(known, kernel, prior, encoder_identity(encoder))
    return locator, dict(zip(words, areas.tolist(), strict=True))


def _presence(examples: Sequence[Example], words: Sequence[str]) -> np.ndarray:
    """Returns 1 where an image's captions have a word, float32 `[images, V]`."""
    columns = {word: number for number, word in enumerate(words)}
    present = np.zeros([len(examples), len(words)], np.float32)
    for row, example in enumerate(examples):
        present[row, [columns[word] for word in words_of(example) if word in columns]] = 1.0
    return present


def _parts(order: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(order), _BATCH):
        yield order[start : start + _BATCH]


class _Classifier:
    """The scores of all words, and what they say of whole images."""

    def __init__(self, annotation_dim: int, locations: int, shares: np.ndarray) -> None:
        self.kernel = tf.Variable(tf.zeros([annotation_dim, len(shares)]))
        self.prior = tf.Variable(tf.zeros([locations]))
        self.bias = tf.Variable(np.log(shares / (1.0 - shares)).astype(np.float32))

    def logits(self, annotations: tf.Tensor) -> tf.Tensor:
        """Scores images `[B, L, D]`: `[B, V]`."""
        scores = tf.einsum("bld,dv->blv", tf.cast(annotations, tf.float32), self.kernel)
        scores += self.prior[:, None]
        locations = tf.cast(tf.shape(scores)[1], tf.float32)
        return tf.reduce_logsumexp(scores, axis=1) - tf.math.log(locations) + self.bias

    def compiled_step(self, optimizer: keras.optimizers.Optimizer) -> Callable:
        """Returns the training step, a function of annotations and presence."""
        variables = [self.kernel, self.prior, self.bias]
        optimizer.build(variables)

        @tf.function(reduce_retracing=True, autograph=False)
        def step(annotations, present):
            with tf.GradientTape() as tape:
                losses = tf.nn.sigmoid_cross_entropy_with_logits(present, self.logits(annotations))
                loss = tf.reduce_mean(tf.reduce_sum(losses, axis=-1))
            optimizer.apply(tape.gradient(loss, variables), variables)
            return loss

        return step


def _scores(model: _Classifier, source: InputSource, readable: np.ndarray) -> np.ndarray:
    """Returns the logits of the readable images, `[n, V]`."""
    logits = tf.function(model.logits, reduce_retracing=True, autograph=False)
    return np.concatenate([logits(source.read(chosen)).numpy() for chosen in _parts(readable)])


def _auroc(scores: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Returns the area under the ROC curve of each word, `[V]`, 0 to 100.

    It is the chance that an image with the word has a higher score than one without.
    """
    ranks = scores.argsort(axis=0).argsort(axis=0) + 1.0
    with_it = present.sum(axis=0)
    above = (ranks * present).sum(axis=0) - with_it * (with_it + 1) / 2
    return 100.0 * above / (with_it * (len(scores) - with_it))
