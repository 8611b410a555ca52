"""Soft and hard attention in one file: the layers, the objectives, plain Keras `fit`, one figure.

    python experiments/minimal.py

trains two captioners on drawn scenes, "a red circle above a blue star", in a few minutes on two
cores, and draws where each of them looked for each word: soft attention takes the mean of all
places by their weights, hard attention one place drawn by them (Xu et al., 2015,
arXiv:1502.03044).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from PIL import Image

from sat_tf import Encoder, RNNDecoder, Vocabulary
from sat_tf.config import AttentionConfig
from sat_tf.inference.figures import attention_figure
from sat_tf.objectives import make_objective
from sat_tf.objectives.estimators import make_baseline
from sat_tf.text.vocabulary import END, START
from training.data.readers import scenes

HIDDEN, SIZE = 128, 64  # units of the LSTM; pixels


class ShowAttendTell(keras.Model):
    """An image and the words so far in, the next words and where they looked out."""

    def __init__(self, vocabulary_size: int, attention: AttentionConfig) -> None:
        super().__init__()
        self.encoder = Encoder("scenes_cnn", image_size=SIZE, trainable=True)  # annotations a
        self.decoder = RNNDecoder(vocabulary_size, embedding_dim=64, hidden_dim=HIDDEN)  # eq. 1-7
        self.attention, self.objective = attention, make_objective(attention)
        self.baseline = make_baseline(attention, HIDDEN)  # of REINFORCE; soft attention has none
        self.seeds = tf.random.Generator.from_seed(0)

    def call(
        self, batch, selection=None, seed=None, use_expectation=None, training=False, samples=1
    ):
        """Reads captions up to each word: logits `[B, T, K]` and alignment scores `[B, T, L]`."""
        annotations = self.encoder(batch["images"], training=training)
        return self.decoder(
            annotations,
            batch["tokens"][:, :-1],
            selection=selection,
            seed=seed,
            use_expectation=use_expectation,
            training=training,
            samples=samples,
        )

    def train_step(self, batch):
        """Descends eq. 14 (soft), or the score-function estimate of eq. 11-12 (hard)."""
        size = tf.cast(tf.shape(batch["tokens"])[0], tf.float32)
        seed = tf.cast(self.seeds.make_seeds(1)[:, 0], tf.int32)
        with tf.GradientTape() as tape:
            terms = self.objective(self, batch, seed, size)
        gradients = tape.gradient(terms.loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        if terms.mean_return is not None:  # a moving average learns from returns, not by descent
            self.baseline.update(terms.mean_return)
        return {"loss": terms.loss, **{name: mean for name, (mean, _) in terms.means.items()}}

    def write(self, image: np.ndarray, most: int = 20) -> tuple[list[int], np.ndarray]:
        """Writes a caption greedily; returns its words and alpha `[T, L]`, eq. 5, of each."""
        selection = "argmax" if self.attention.kind == "hard" else "expectation"
        words = [START]
        while words[-1] != END and len(words) <= most:
            batch = {"images": image[np.newaxis], "tokens": np.array([[*words, END]], np.int32)}
            output = self(batch, selection=selection)
            words.append(int(tf.argmax(output.logits[0, -1])))
        alpha = tf.nn.softmax(output.alignment_scores[0]).numpy()
        return [word for word in words[1:] if word != END], alpha


def data(count: int, split: str = "train") -> tuple[np.ndarray, list[str]]:
    """Draws scenes: float32 pixels `[N, 64, 64, 3]`, 0..255, and a caption of each."""
    examples = scenes.load(split, count=count, image_size=SIZE).examples
    images = np.stack([example.image for example in examples]).astype(np.float32)
    return images, [example.captions[0] for example in examples]


def train(kind: str, count: int, epochs: int, seed: int = 0) -> tuple[ShowAttendTell, Vocabulary]:
    """Trains a captioner with soft or hard attention on `count` scenes."""
    keras.utils.set_random_seed(seed)
    images, captions = data(count)
    vocabulary = Vocabulary.from_captions(captions, min_count=1)
    rows = [[START, *vocabulary.encode(caption), END] for caption in captions]
    tokens = keras.utils.pad_sequences(rows, padding="post")  # <pad> is 0: it costs nothing
    batches = tf.data.Dataset.from_tensor_slices({"images": images, "tokens": tokens})
    batches = batches.shuffle(count, seed=seed).batch(32, drop_remainder=True)
    model = ShowAttendTell(len(vocabulary), AttentionConfig(kind=kind))  # as in the paper
    model.compile(keras.optimizers.Adam(2e-3, global_clipnorm=5.0))
    model.fit(batches, epochs=epochs, shuffle=False, verbose=2)
    return model, vocabulary


def main(argv: list[str] | None = None) -> None:
    """Trains both captioners and draws where they looked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenes", type=int, default=4000, help="scenes to train on")
    parser.add_argument("--epochs", type=int, default=12, help="passes over them")
    parser.add_argument("--out", type=Path, default=Path("minimal.png"), help="the figure")
    arguments = parser.parse_args(argv)
    (image,), (reference,) = data(1, "dev")
    sheets = []
    for kind in ("soft", "hard"):
        # Draws are noisier than their mean, so learning takes longer.
        epochs = arguments.epochs * (3 if kind == "hard" else 1)
        model, vocabulary = train(kind, arguments.scenes, epochs)
        words, alpha = model.write(image)
        maps = alpha[: len(words)].reshape(-1, *model.encoder.grid)
        chosen = alpha.argmax(axis=-1)[: len(words)] if kind == "hard" else None
        forms = [vocabulary.words[word] for word in words]
        title = f"{kind}: {vocabulary.join(forms)}"
        print(f"{title}   (reference: {reference})")
        sheets.append(
            attention_figure(image.astype(np.uint8), forms, maps, title=title, chosen=chosen)
        )
    width = max(sheet.shape[1] for sheet in sheets)
    padded = [np.pad(s, ((0, 0), (0, width - s.shape[1]), (0, 0)), mode="edge") for s in sheets]
    Image.fromarray(np.concatenate(padded)).save(arguments.out)
    print(f"Where they looked: {arguments.out}")


if __name__ == "__main__":
    sys.exit(main())
