#!/usr/bin/env bash
# load_weights(skip_mismatch=True) loads the weights of a layer up to the first that does not fit.
#
# Seen with: Keras 3.15.1, TensorFlow 2.21.0.
# A good guess: a layer is loaded whole or not at all, or all of its weights that fit are loaded.
# What is seen: of three weights of which the second has another shape, the first is loaded, and the
# third, which fits, is not. The warning counts one object that could not be loaded.
# It matters to: starting from another vocabulary, where one weight of a layer grows: part of the
# layer is new, part old, by the order in which the layer made its weights.
# What we do: rows of known words are copied by name, and everything else has to fit.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check tensorflow==2.21.0 keras==3.15.1
cd "$work"
TF_CPP_MIN_LOG_LEVEL=3 KERAS_BACKEND=tensorflow "$work/venv/bin/python" -W ignore - <<'PY'
import warnings

import keras
import numpy as np


class Three(keras.layers.Layer):
    """Three weights, of which the second is as long as asked."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def build(self, shape):
        self.before = self.add_weight(shape=[2], name="before")
        self.grown = self.add_weight(shape=[self.size], name="grown")
        self.after = self.add_weight(shape=[2], name="after")

    def call(self, x):
        return x


def model(size, value):
    made = keras.Sequential([keras.Input([1]), Three(size)])
    made.set_weights([np.full(w.shape, value) for w in made.get_weights()])
    return made


model(3, 1.0).save_weights("three.weights.h5")
larger = model(5, 0.0)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    larger.load_weights("three.weights.h5", skip_mismatch=True)
told = [str(w.message) for w in said if "could not be loaded" in str(w.message)]
loaded = [bool(w.all()) for w in larger.get_weights()]
print(loaded, told[0][:60])
assert loaded == [True, False, False], loaded
assert told[0].startswith("A total of 1 objects could not be loaded"), told
PY
