"""A classifier that finds the places of words in images, learned from captions alone.

No image comes with the place of a word, but its captions say which words it has. The locator scores
every location for every word, `s[w,i] = u_w . a_i + r_i`, and an image for a word by its best
locations:

    p(w | a) = sigmoid(log mean_i exp s[w,i] + b_w)

`r` is the same for all words: how much a location tells, whatever the image.

Trained to tell the images whose captions have the word from the others, `softmax_i s[w,i]` is
high at the locations that only images with the word have. Locations whose annotations are alike
share it, and a power makes it sharper: the word's map. The maps can supervise attention as boxes
do (`training.teach.attention_targets`).

References:
    Fang et al. (2015), "From Captions to Visual Concepts and Back", arXiv:1411.4952 (words by
    multiple-instance learning); Pinheiro and Collobert (2015), arXiv:1411.6228 (log-mean-exp).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from sat_tf.layers.encoder import Encoder
from sat_tf.stderr import progress_bar
from sat_tf.vocabulary import Vocabulary
from training.data.boxes import WORDS
from training.data.examples import DataError, Example
from training.data.image_loader import InputSource
from training.data.seen_images import SeenImages
from training.inputs import LOCATOR, Data, Lesson, Teacher
from training.teach import open_archive, save_archive
from training.teach.attention_targets import AttentionTargets

_FORMAT = 3
_TEMPERATURE = 0.2
"""Of the softmax over cosines by which locations share a map."""
_SHARPNESS = 6.0
"""Power of a map: as they come, maps are nearly flat, and so is attention that matches them."""
_COMMON = 0.5
"""Words of more than this share of the images tell nothing about a place."""
_BATCH = 32


@dataclass(frozen=True, eq=False)
class WordLocator:
    """Scores of words at locations, for the annotations of one encoder.

    Attributes:
        words: The words it locates, `[V]`.
        kernel: float32 `[D, V]`, u.
        prior: float32 `[L]`, r.
        encoder: Identity of the encoder, see `encoder_identity`.
        seen: Images that it was learned from, if it says.
    """

    words: tuple[str, ...]
    kernel: np.ndarray
    prior: np.ndarray
    encoder: str
    seen: SeenImages | None = None

    def maps(self, annotations: np.ndarray, words: Sequence[str]) -> np.ndarray:
        """Returns the map of each word in an image.

        Args:
            annotations: `[L, D]`.
            words: `[n]`, all among `self.words`.

        Returns:
            float32 `[n, L]`, each of sum 1.
        """
        found = annotations.astype(np.float32)
        columns = [self.words.index(word) for word in words]
        scores = (found @ self.kernel[:, columns]).T + self.prior
        maps = np.exp(scores - scores.max(axis=1, keepdims=True))
        maps = (maps / maps.sum(axis=1, keepdims=True)) @ _likeness(found).T
        maps = (maps / maps.max(axis=1, keepdims=True)) ** _SHARPNESS
        return maps / maps.sum(axis=1, keepdims=True)

    def save(self, path: Path) -> None:
        """Writes the locator as an `.npz`."""
        about = {"format": _FORMAT, "words": self.words, "encoder": self.encoder}
        save_archive(path, about, {"kernel": self.kernel, "prior": self.prior}, self.seen)

    @classmethod
    def load(cls, path: Path, encoder: Encoder) -> WordLocator:
        """Reads the locator of an encoder's annotations.

        Raises:
            DataError: The file is not a locator, or that of another encoder.
        """
        identity = encoder_identity(encoder)
        otherwise = "is not a word locator, as `python -m training.locate` writes it"
        with open_archive(path, _FORMAT, otherwise) as (about, arrays, seen):
            kernel, prior = arrays["kernel"], arrays["prior"]
            words, known = tuple(about["words"]), str(about["encoder"])
            if kernel.ndim != 2 or prior.ndim != 1 or kernel.shape[1] != len(words):
                raise ValueError("its scores are of other words")
            if not (np.isfinite(kernel).all() and np.isfinite(prior).all()):
                raise ValueError("its scores are not finite")
        if known != identity:
            raise DataError(
                f"The word locator is for the annotations of {known}; the encoder is {identity}. "
                "Run `python -m training.locate` with the settings of the training."
            )
        return cls(words, kernel, prior, known, seen)

    def fingerprint(self) -> str:
        """Returns the SHA-256 (hexadecimal) of words, kernel and prior."""
        digest = hashlib.sha256(json.dumps([_FORMAT, self.words]).encode())
        for array in (self.kernel, self.prior):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def encoder_identity(encoder: Encoder) -> str:
    """Describes an encoder by what its annotations depend on, its weights by a digest."""
    height, width = encoder.grid
    grid = f"{height} x {width} x {encoder.annotation_dim}"
    digest = hashlib.sha256()
    for weight in encoder.weights:
        digest.update(np.ascontiguousarray(weight, np.float32).data)
    return f"{encoder.backbone}, {encoder.tap}, {grid}, weights {digest.hexdigest()[:12]}"


def _likeness(annotations: np.ndarray) -> np.ndarray:
    """Returns how much of each other location's map a location takes, `[L, L]`, rows of sum 1."""
    norms = np.linalg.norm(annotations, axis=1, keepdims=True)
    directions = annotations / np.maximum(norms, 1e-6)
    shares = np.exp((directions @ directions.T - 1.0) / _TEMPERATURE)
    return shares / shares.sum(axis=1, keepdims=True)


def words_of(example: Example, vocabulary: Vocabulary = WORDS) -> set[str]:
    """Returns the words of an image's captions."""
    return {word for caption in example.captions for word in vocabulary.base_words(caption)}


def located_targets(
    locator: WordLocator,
    grid: tuple[int, int],
    captions: Sequence[Sequence[Sequence[tuple[str, int, int]]]],
    source: InputSource,
) -> AttentionTargets:
    """Makes the maps that attention is to match at the words that a locator knows.

    Args:
        locator: The locator, of the annotations.
        grid: `(h, w)` of the annotations.
        captions: The words of each caption of each image, see `Vocabulary.places`.
        source: The annotations.

    Raises:
        DataError: The locator knows no word of the captions.
    """
    known, maps, places = set(locator.words), [], {}
    for start in range(0, len(captions), _BATCH):
        numbers = np.arange(start, min(start + _BATCH, len(captions)))
        for number, of_image in zip(numbers.tolist(), source.read(numbers), strict=True):
            words = sorted({word for found in captions[number] for word, *_ in found} & known)
            if number in source.skipped or not words:
                continue
            of_word = {word: len(maps) + n for n, word in enumerate(words)}
            maps.extend(locator.maps(of_image, words).astype(np.float16))
            for caption, found in enumerate(captions[number]):
                places[number, caption] = [
                    (first, last, of_word[word]) for word, first, last in found if word in known
                ]
    if not maps:
        raise DataError("The word locator knows no word of the training captions.")
    maps = np.stack(maps).reshape(-1, *grid)
    return AttentionTargets(maps, places, "words by a locator", locator.fingerprint())


def locator_teacher(file: Path) -> Teacher:
    """Returns what reads a word locator, a file of training.locate, whose maps teach attention."""

    def read(data: Data, encoder: Encoder, resize: str) -> Callable[[InputSource], Lesson]:
        locator = WordLocator.load(file, encoder)
        captions = [example.captions for example in data.train.examples]
        words = [[data.vocabulary.places(text) for text in texts] for texts in captions]

        def teach(source: InputSource) -> Lesson:
            targets = located_targets(locator, encoder.grid, words, source)
            return targets.lesson(LOCATOR, (file.name, locator.seen))

        return teach

    return read


def words_to_locate(
    examples: Sequence[Example], min_images: int, vocabulary: Vocabulary = WORDS
) -> tuple[str, ...]:
    """Returns the words of at least `min_images` images, but at most half of them, sorted."""
    counts = Counter(word for example in examples for word in words_of(example, vocabulary))
    most = _COMMON * len(examples)
    return tuple(sorted(word for word, n in counts.items() if min_images <= n <= most))


def learn(
    encoder: Encoder,
    examples: Sequence[Example],
    source: InputSource,
    vocabulary: Vocabulary = WORDS,
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
        vocabulary: Splits captions; by default, into words.
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
    words = words_to_locate([examples[n] for n in readable], min_images, vocabulary)
    if not words:
        raise DataError(f"No word is in the captions of {min_images} images or more.")
    columns = {word: number for number, word in enumerate(words)}
    present = np.zeros([len(examples), len(words)], np.float32)
    for row, example in enumerate(examples):
        own = words_of(example, vocabulary)
        present[row, [columns[word] for word in own if word in columns]] = 1.0
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
    logits = tf.function(model.logits, reduce_retracing=True, autograph=False)
    scores = [logits(source.read(chosen)).numpy() for chosen in _parts(readable)]
    areas = _auroc(np.concatenate(scores), present[readable] > 0)
    kept = [number for number, area in enumerate(areas) if area >= min_auroc]
    if not kept:
        raise DataError("The annotations do not tell any word from the others.")
    kernel = model.kernel.numpy()[:, kept]
    known, prior = tuple(words[n] for n in kept), model.prior.numpy()
    locator = WordLocator(known, kernel, prior, encoder_identity(encoder))
    return locator, dict(zip(words, areas.tolist(), strict=True))


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


def _auroc(scores: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Returns the area under the ROC curve of each word, `[V]`, 0 to 100.

    It is the chance that an image with the word has a higher score than one without.
    """
    ranks = scores.argsort(axis=0).argsort(axis=0) + 1.0
    with_it = present.sum(axis=0)
    above = (ranks * present).sum(axis=0) - with_it * (with_it + 1) / 2
    return 100.0 * above / (with_it * (len(scores) - with_it))
