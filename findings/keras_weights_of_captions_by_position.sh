#!/usr/bin/env bash
# Keras applies weights of captions to word positions where a batch has as many captions as words.
#
# Seen with: Keras 3.15.1, TensorFlow 2.21.0.
# A good guess: sample_weight of shape (batch,) weighs each sample of the batch, as is documented.
# What is seen: losses of words are (batch, words), and NumPy's rules align the weights with the
# last axis: with 4 captions of 4 words, weights 1, 0, 0, 0 keep the first word of every caption.
# With 4 captions of 3 words the same weights are an error; metrics given to weighted_metrics weigh
# captions.
# It matters to: bucketed or cut captions, where some batches happen to be square.
# What we do: our objectives weigh captions themselves; for others the manual says weights[:, None].
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check tensorflow-cpu==2.21.0 keras==3.15.1
cd "$work"
TF_CPP_MIN_LOG_LEVEL=3 KERAS_BACKEND=tensorflow "$work/venv/bin/python" -W ignore - <<'PY'
import keras
import numpy as np

rng = np.random.default_rng(0)
given = rng.normal(size=[4, 4, 5]).astype("float32")
words = rng.integers(0, 5, [4, 4])
weights = np.array([1.0, 0.0, 0.0, 0.0], "float32")
losses = np.asarray(
    keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)(words, given)
)


def evaluated(given, words, weights):
    """The loss, and the weighted metric of the same name."""
    x = keras.Input(given.shape[1:])
    model = keras.Model(x, keras.layers.Identity()(x))
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    counted = keras.metrics.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", cross_entropy, weighted_metrics=[counted])
    return model.evaluate(given, words, sample_weight=weights, verbose=0)


loss, metric = evaluated(given, words, weights)
by_caption, by_position = (losses * weights[:, None]).mean(), (losses * weights).mean()
print(f"loss {loss:.4f}; by caption {by_caption:.4f}, by position {by_position:.4f}")
np.testing.assert_allclose(loss, by_position, rtol=1e-5)
np.testing.assert_allclose(metric, losses[0].mean(), rtol=1e-5)
np.testing.assert_allclose(evaluated(given, words, weights[:, None])[0], by_caption, rtol=1e-5)
try:
    evaluated(given[:, :3], words[:, :3], weights)
except Exception as error:
    print("captions of 3 words:", type(error).__name__)
else:
    raise AssertionError("captions of 3 words are no error any more")
PY
