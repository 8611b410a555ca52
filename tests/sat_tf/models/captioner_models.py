"""Captioners of a few units and batches to train them on, for the tests of the captioner."""

import keras
import numpy as np
import tensorflow as tf

from sat_tf.captioner import Captioner
from sat_tf.config import (
    AttentionConfig,
    CaptionerConfig,
    DecoderConfig,
    EncoderConfig,
    SearchConfig,
)
from sat_tf.text.vocabulary import END, PAD, START, UNK

SIDE, L, D, VOCABULARY = 16, 4, 32, 9
SIZES = {"embedding_dim": 6, "attention_dim": 7, "hidden_dim": 8}
KINDS = ("soft", "hard", "none")


def make_config(kind="soft", trainable=False, trainable_from=None, decoder=None, **attention):
    return CaptionerConfig(
        EncoderConfig(
            "scenes_cnn", image_size=SIDE, trainable=trainable, trainable_from=trainable_from
        ),
        DecoderConfig(**SIZES, **(decoder or {})),
        AttentionConfig(kind, **attention),
        SearchConfig(beam=3, max_length=5),
    )


def make_model(kind="soft", seed=0, **options):
    keras.utils.set_random_seed(seed)
    return Captioner(make_config(kind, **options), VOCABULARY)


def randomise(model, scale=0.5):
    """A decoder of captions that differ: wide weights, biases too."""
    rng = np.random.default_rng(5)
    decoder = model.decoder
    decoder.set_weights([scale * rng.normal(size=w.shape) for w in decoder.weights])
    return model


def make_batch(captions=4, inputs="annotations", seed=0):
    """Captions of 1 to 4 words, a word or two of them its image's own."""
    rng = np.random.default_rng(seed)
    tokens = np.full([captions, 6], PAD, np.int32)
    for row, length in enumerate(rng.integers(1, 5, captions)):
        words = rng.integers(UNK + 1, VOCABULARY, length)
        tokens[row, : length + 2] = [START, *words, END]
    shape = {"annotations": [L, D], "images": [SIDE, SIDE, 3]}[inputs]
    values = rng.uniform(0, 2 if inputs == "annotations" else 255, [captions, *shape])
    return {"tokens": tokens, inputs: values.astype(np.float32)}


def as_dataset(batch, size):
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    return tf.data.Dataset.from_tensor_slices(batch).batch(size).with_options(options)


def compile_model(model, rate=1e-2, **options):
    model.compile(optimizer=keras.optimizers.Adam(rate), jit_compile=False, **options)
    return model


class Losses(keras.callbacks.Callback):
    """The running means after every batch."""

    def on_train_begin(self, logs=None):
        self.logs = []

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append({name: float(value) for name, value in logs.items()})


def fit(model, batch, size=None, epochs=1):
    losses = Losses()
    data = as_dataset(batch, size or len(batch["tokens"]))
    model.fit(data, epochs=epochs, verbose=0, shuffle=False, callbacks=[losses])
    return losses.logs
