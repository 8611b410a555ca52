#!/usr/bin/env bash
# metrics.SparseCategoricalCrossentropy(ignore_class=0) counts what it ignores as predicted for
# sure.
#
# Seen with: Keras 3.15.1, TensorFlow 2.21.0.
# A good guess: the metric is the mean over the words that are not ignored, as the loss of the same
# name and option is.
# What is seen: ignored words have a loss of 0 and are counted: two words of four at ln 5 give 0.80
# as a metric, 1.61 as a loss. exp of it is no perplexity: 2.2 for a uniform guess among 5.
# It matters to: perplexities of captions, which get better with more padding.
# What we do: our means are weighed by words; for others the manual says sample_weight=targets != 0.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check tensorflow-cpu==2.21.0 keras==3.15.1
cd "$work"
TF_CPP_MIN_LOG_LEVEL=3 KERAS_BACKEND=tensorflow "$work/venv/bin/python" -W ignore - <<'PY'
import keras
import numpy as np

words = np.array([[1, 2, 0, 0]])
guess = np.full([1, 4, 5], 0.2, "float32")
metric = keras.metrics.SparseCategoricalCrossentropy(ignore_class=0)
metric.update_state(words, guess)
loss = float(keras.losses.SparseCategoricalCrossentropy(ignore_class=0)(words, guess))
weighted = keras.metrics.SparseCategoricalCrossentropy()
weighted.update_state(words, guess, sample_weight=words != 0)
seen = float(metric.result()), loss, float(weighted.result())
print("metric {:.4f}, loss {:.4f}, metric with weights {:.4f}".format(*seen))
np.testing.assert_allclose(seen, np.log(5) * np.array([0.5, 1.0, 1.0]), rtol=1e-5)
PY
