#!/usr/bin/env bash
# Layer(autocast=False) is ignored where the layer is called by itself, and holds inside a model.
#
# Seen with: Keras 3.15.1, TensorFlow 2.21.0.
# A good guess: a layer made with autocast=False reads its float32 weights as they are, under a
# policy of mixed precision, too.
# What is seen: called by itself the layer reads weights that were rounded to bfloat16 (1.001 is
# 1.0); called by a model of the same policy it reads them in float32. Its gradients are rounded
# likewise.
# It matters to: layers that normalise in float32 and are tested alone. Embedding is one: its
# gradient is summed in bfloat16 or in float32.
# What we do: parts of our decoder are called by a layer around them.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check tensorflow-cpu==2.21.0 keras==3.15.1
cd "$work"
TF_CPP_MIN_LOG_LEVEL=3 KERAS_BACKEND=tensorflow "$work/venv/bin/python" -W ignore - <<'PY'
import keras
import numpy as np


class Weight(keras.layers.Layer):
    """Adds its weight in float32."""

    def __init__(self):
        super().__init__(dtype="mixed_bfloat16", autocast=False)

    def build(self, shape):
        self.weight = self.add_weight(shape=[1], initializer=keras.initializers.Constant(1.001))

    def call(self, x):
        return keras.ops.cast(x, "float32") + keras.ops.cast(self.weight, "float32")


layer = Weight()
x = keras.Input([1], dtype="float32")
model = keras.Model(x, layer(x))
model.dtype_policy = keras.DTypePolicy("mixed_bfloat16")
zero = np.zeros([1, 1], "float32")
alone, inside = float(layer(zero)[0, 0]), float(model(zero)[0, 0])
print("the weight 1.001 is read alone as", alone, "and in a model as", round(inside, 6))
assert alone == 1.0 and abs(inside - 1.001) < 1e-6, (alone, inside)
PY
