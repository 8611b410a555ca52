#!/usr/bin/env bash
# A metric that is compiled again adds the next evaluation to the last one.
#
# Seen with: Keras 3.15.1, TensorFlow 2.21.0.
# A good guess: evaluate resets its metrics before it starts, as it does when it is called twice.
# What is seen: data without and with errors have accuracies of 1 and 0. After compile with the same
# metric object, the first evaluate of the second gives 0.5, the mean over both; called once more,
# 0.
# It matters to: notebooks that compile again with another optimiser, and to comparing two models by
# one list of metrics.
# What we do: our models make their means themselves, anew for each compile.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check tensorflow-cpu==2.21.0 keras==3.15.1
cd "$work"
TF_CPP_MIN_LOG_LEVEL=3 KERAS_BACKEND=tensorflow "$work/venv/bin/python" -W ignore - <<'PY'
import keras
import numpy as np

metric = keras.metrics.BinaryAccuracy(name="accuracy")
right, wrong = np.ones([4, 1]), np.zeros([4, 1])


def compiled():
    x = keras.Input([1])
    model = keras.Model(x, keras.layers.Identity()(x))
    model.compile("sgd", "mse", metrics=[metric])
    return model


first = compiled()
seen = [first.evaluate(right, labels, verbose=0)[1] for labels in (right, wrong, right)]
second = compiled()
seen += [second.evaluate(right, wrong, verbose=0)[1] for _ in range(2)]
print("accuracy, right, wrong, right; another model, wrong twice:", seen)
assert seen == [1.0, 0.0, 1.0, 0.5, 0.0], seen
PY
