#!/usr/bin/env bash
# Adam moves the embedding of a word that occurs 64 times in a batch 8 times as far as it should.
#
# Seen with: Keras 3.15.1, TensorFlow 2.21.0.
# A good guess: an optimiser sees the gradient of the loss, whatever form TensorFlow gives it;
# Adam's first step is as long as its learning rate.
# What is seen: an embedding's gradient has a row per occurrence, and the optimisers square the rows
# before those of the same word are added up: n occurrences with gradients g count as n g^2, not as
# (n g)^2, so the step is sqrt(n) times as long. So it is in fit, for Adam, AdamW, Nadam, RMSprop,
# Adagrad, Adadelta, Adafactor, Lamb and Ftrl; SGD, Lion and Adamax are right.
# It matters to: the words "a" and "." of captions, whose learning rate grows with the batch.
# What we do: the embedding of our decoder has a dense gradient, whatever model it is part of.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check tensorflow-cpu==2.21.0 keras==3.15.1
cd "$work"
TF_CPP_MIN_LOG_LEVEL=3 KERAS_BACKEND=tensorflow "$work/venv/bin/python" -W ignore - <<'PY'
import keras
import numpy as np
import tensorflow as tf


def step(name, count, densely):
    """How far a word moves at the first step if it occurs this often."""
    layer = keras.layers.Embedding(6, 2, embeddings_initializer="zeros")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.ones([count], tf.int32)))
    gradient = tape.gradient(loss, layer.embeddings.value)
    gradient = tf.convert_to_tensor(gradient) if densely else gradient
    getattr(keras.optimizers, name)(0.1).apply([gradient], [layer.embeddings])
    return abs(float(layer.embeddings[1, 0]))


squaring = "Adam AdamW Nadam RMSprop Adagrad Adadelta Adafactor Lamb Ftrl"
for name in squaring.split():
    ratio = step(name, 64, False) / step(name, 64, True)
    print(f"{name}: a word that occurs 64 times moves {ratio:.2f} times as far as densely")
    np.testing.assert_allclose(ratio, 8.0, rtol=2e-3)
for name in ("SGD", "Lion", "Adamax"):
    np.testing.assert_allclose(step(name, 64, False), step(name, 64, True), rtol=1e-5)

words = keras.Input([65], dtype="int32")
layer = keras.layers.Embedding(6, 2, embeddings_initializer="zeros")
model = keras.Model(words, layer(words))
model.compile(keras.optimizers.Adam(0.1), lambda _, found: found)
model.fit(np.array([[2] + [1] * 64]), np.zeros([1, 65]), verbose=0)
often, once = np.abs(layer.embeddings[1:3, 0])
print(f"in fit: one occurrence moves a word by {once:.3f}, 64 by {often:.3f}")
np.testing.assert_allclose(often / once, 8.0, rtol=2e-3)
PY
