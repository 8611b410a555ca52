#!/usr/bin/env bash
# A Keras model that was quantised to int8 cannot be exported to LiteRT, by Keras itself.
#
# Seen with: Keras 3.15.1, TensorFlow 2.21.0, ai-edge-litert 2.3.0.
# A good guess: quantize("int8") and export(format="litert"), both of keras.Model, are made for each
# other.
# What is seen: a single Dense layer is exported before, in 4 bytes a weight; after quantize("int8")
# the converter refuses the product of int8 tensors, 'tfl.fully_connected' op operand #0. Export as
# a SavedModel works, with equal outputs.
# It matters to: everyone who quantises for a phone.
# What we do: LiteRT quantises the graph of float32 weights (serving.export --litert-precision
# int8).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check \
  tensorflow-cpu==2.21.0 keras==3.15.1 ai-edge-litert==2.3.0
cd "$work"
TF_CPP_MIN_LOG_LEVEL=3 KERAS_BACKEND=tensorflow "$work/venv/bin/python" -W ignore - <<'PY'
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input([64]), keras.layers.Dense(64)])
model.export("float32.tflite", format="litert", verbose=False)
model.quantize("int8")
x = np.random.default_rng(0).normal(size=[2, 64]).astype("float32")
model.export("saved", verbose=False)
saved = tf.saved_model.load("saved")
np.testing.assert_allclose(saved.serve(x), model(x), rtol=1e-5, atol=1e-6)
try:
    model.export("int8.tflite", format="litert", verbose=False)
except Exception as error:
    told = str(error)
    reason = told[told.index("'tfl.fully_connected' op operand #0") :].splitlines()[0]
    print(type(error).__name__, reason)
else:
    raise AssertionError("the quantised model is exported now")
PY
