#!/usr/bin/env bash
# Keras' clipnorm lets the gradient of an embedding exceed the norm where a word occurs twice.
#
# Seen with: Keras 3.15.1, TensorFlow 2.21.0.
# A good guess: clipnorm=1 makes no step of SGD(1.0) longer than 1.
# What is seen: an embedding's gradient has a row per occurrence of a word, and its norm is taken
# before rows of the same word are added up: with a word that occurs twice, the step is 1.41 long,
# with one that occurs 64 times 8; the same gradient made dense gives 1. So it is for
# global_clipnorm.
# It matters to: training on captions, where most words of a batch are repeated.
# What we do: our train step adds the rows up before it clips.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check tensorflow-cpu==2.21.0 keras==3.15.1
TF_CPP_MIN_LOG_LEVEL=3 "$work/venv/bin/python" -W ignore - <<'PY'
import keras
import numpy as np
import tensorflow as tf


def step(words, densely, **options):
    """The length of one step of an embedding of zeros."""
    layer = keras.layers.Embedding(6, 2, embeddings_initializer="zeros")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant(words)) * [3.0, 4.0])
    gradient = tape.gradient(loss, layer.embeddings.value)
    assert isinstance(gradient, tf.IndexedSlices)
    gradient = tf.convert_to_tensor(gradient) if densely else gradient
    keras.optimizers.SGD(1.0, **options).apply([gradient], [layer.embeddings])
    return float(np.linalg.norm(layer.embeddings.numpy()))


for name in ("clipnorm", "global_clipnorm"):
    seen = [step([1] * n, False, **{name: 1.0}) for n in (1, 2, 64)]
    dense = step([1, 1], True, **{name: 1.0})
    print(f"{name}=1: steps of one word that occurs 1, 2, 64 times {seen}; made dense {dense}")
    np.testing.assert_allclose(seen, [1.0, 2**0.5, 8.0], rtol=1e-5)
    np.testing.assert_allclose(dense, 1.0, rtol=1e-5)
PY
