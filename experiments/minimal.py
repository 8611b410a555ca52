"""Soft and hard attention in one file: the layers, the objectives, plain Keras `fit`, one figure.

    python experiments/minimal.py

trains a captioner on drawn scenes, "a red circle and a blue star", within five minutes on two
cores, and draws where it looked for each word: soft attention takes the mean of all places by
their weights, hard attention one place drawn by them (Xu et al., 2015, arXiv:1502.03044). Hard
attention continues from soft attention's weights: to new layers, single draws among 64 places
say little.
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
from sat_tf.text.vocabulary import END, START
from training.data.readers import scenes

SIZE, CELLS = 64, 8  # sides of an image, pixels, and of a map
LONGEST, NEW = 12, 100  # words of a caption, with <end>; scenes that are not trained on


class ShowAttendTell(keras.Model):
    """An image and the words so far in, the next words and where they looked out."""

    def __init__(self, encoder: Encoder, decoder: RNNDecoder, kind: str) -> None:
        super().__init__()
        self.encoder, self.decoder, self.kind = encoder, decoder, kind
        # No penalty: captions leave most of a scene unmentioned. Hard attention draws five samples
        # of each caption; each one's baseline is the mean of the others, so none has to be learned.
        attention = AttentionConfig(kind=kind, penalty_weight=0.0, preset="rloo")
        self.objective, self.baseline = make_objective(attention), None
        self.seeds = tf.random.Generator.from_seed(0)

    def call(
        self, batch, selection=None, seed=None, use_expectation=None, training=False, samples=1
    ):
        """Reads captions up to each word: logits `[B, T, K]` and alignment scores `[B, T, L]`."""
        return self.decoder(
            self.encoder(batch["images"], training=training),
            batch["tokens"][:, :-1],
            selection=selection,
            seed=seed,
            use_expectation=use_expectation,
            training=training,
            samples=samples,
        )

    def train_step(self, batch):
        """Descends eq. 14 (soft), or the score-function estimate of eq. 11-12 (hard)."""
        seed = tf.cast(self.seeds.make_seeds(1)[:, 0], tf.int32)
        with tf.GradientTape() as tape:
            terms = self.objective(self, batch, seed)
        gradients = tape.gradient(terms.loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": terms.loss, **{name: mean for name, (mean, _) in terms.means.items()}}

    def write(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Writes captions greedily: words `[N, T]`, and where it looked, alpha `[N, T, L]`."""
        selection = "argmax" if self.kind == "hard" else "expectation"
        tokens = np.full([len(images), 1], START, np.int32)
        for _ in range(LONGEST):  # the last token of a batch is only a target
            batch = {"images": images, "tokens": np.pad(tokens, ((0, 0), (0, 1)))}
            output = self(batch, selection=selection)
            tokens = np.append(tokens, np.argmax(output.logits[:, -1:], axis=-1), axis=1)
        return tokens[:, 1:], tf.nn.softmax(output.alignment_scores).numpy()


def data(count: int) -> tuple[np.ndarray, list[str], list[list[tuple]]]:
    """Draws scenes: pixels `[N, 64, 64, 3]`, 0..255, and each one's caption and objects' boxes."""
    rng = np.random.default_rng(0)
    drawn = [scenes.place_objects(rng, scenes.PAIRS) for _ in range(count)]
    drawn = [sorted(objects, key=lambda item: item.x) for objects in drawn]  # as captions name them
    images = np.stack([scenes.draw(objects, (), rng, SIZE) for objects in drawn])
    captions = [" and ".join(f"a {item.colour} {item.shape}" for item in row) for row in drawn]
    return images.astype(np.float32), captions, [[item.box for item in row] for row in drawn]


def train(model: ShowAttendTell, inputs: dict[str, np.ndarray], steps: int, rate: float) -> None:
    """Trains on batches of 32 scenes, with a warm-up and a cosine decay to 0."""
    batches = tf.data.Dataset.from_tensor_slices(inputs)
    batches = batches.shuffle(len(inputs["images"]), seed=0).repeat().batch(32)
    decay = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=rate, warmup_steps=steps // 10
    )
    model.compile(keras.optimizers.Adam(decay, global_clipnorm=5.0))
    model.fit(batches, epochs=8, steps_per_epoch=steps // 8, shuffle=False, verbose=2)


def pointing(alpha: np.ndarray, boxes: list[list[tuple]]) -> float:
    """Share of the colours and shapes for which it looked most at the object that they name."""
    hits = []
    for maps, objects in zip(alpha, boxes, strict=True):
        for number, (top, left, bottom, right) in enumerate(objects):  # "a red circle and"
            for place in maps[4 * number + 1 : 4 * number + 3].argmax(axis=-1):
                y, x = (np.array(divmod(place, CELLS)) + 0.5) / CELLS
                hits.append(top <= y <= bottom and left <= x <= right)
    return float(np.mean(hits))


def main(argv: list[str] | None = None) -> None:
    """Trains with soft, then with hard attention, and draws where each looked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000, help="of soft attention; hard: a fifth")
    parser.add_argument("--out", type=Path, default=Path("minimal.png"), help="the figure")
    arguments = parser.parse_args(argv)
    keras.utils.set_random_seed(0)
    images, captions, boxes = data(4 * arguments.steps + NEW)
    vocabulary = Vocabulary.from_captions(captions[:-NEW], min_count=1)
    rows = [[START, *vocabulary.encode(caption), END] for caption in captions[:-NEW]]
    tokens = keras.utils.pad_sequences(rows, padding="post")  # <pad> is 0: it costs nothing
    # Annotations a, and eq. 1-7. The state starts from zeros: from the mean annotation, the
    # decoder would learn to read the whole image without attention.
    encoder = Encoder("scenes_cnn", image_size=SIZE, trainable=True)
    decoder = RNNDecoder(
        len(vocabulary), embedding_dim=128, attention_dim=64, hidden_dim=256, initial_layers=0
    )
    shown, sheets = next(i for i in range(-NEW, 0) if len(boxes[i]) == 2), []
    for kind, share, rate in (("soft", 1, 2e-3), ("hard", 5, 1e-3)):
        model = ShowAttendTell(encoder, decoder, kind)
        train(model, {"images": images[:-NEW], "tokens": tokens}, arguments.steps // share, rate)
        written, alpha = model.write(images[-NEW:])
        texts = [vocabulary.decode(row) for row in written]
        right = sum(text == caption for text, caption in zip(texts, captions[-NEW:], strict=True))
        looked = pointing(alpha, boxes[-NEW:])
        print(f"{kind}: {right} of {NEW} new scenes right, pointing game {looked:.0%}")
        title, words = f"{kind}: {texts[shown]}", texts[shown].split()
        maps, picture = alpha[shown, : len(words)], images[shown].astype(np.uint8)
        chosen = maps.argmax(axis=-1) if kind == "hard" else None
        maps = maps.reshape(-1, CELLS, CELLS)
        sheets.append(attention_figure(picture, words, maps, title=title, chosen=chosen))
        print(f"{title}   (drawn: {captions[shown]})")
        encoder.trainable = False  # hard attention goes on with the decoder alone
    width = max(sheet.shape[1] for sheet in sheets)
    padded = [np.pad(s, ((0, 0), (0, width - s.shape[1]), (0, 0)), mode="edge") for s in sheets]
    Image.fromarray(np.concatenate(padded)).save(arguments.out)
    print(f"Where they looked: {arguments.out}")


if __name__ == "__main__":
    sys.exit(main())
