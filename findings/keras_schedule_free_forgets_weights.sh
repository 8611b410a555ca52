#!/usr/bin/env bash
# ScheduleFreeAdamW replaces pretrained weights by zeros in the first step of fit.
#
# Seen with: Keras 3.15.1, TensorFlow 2.21.0.
# A good guess: an optimiser goes on from the weights that it is given.
# What is seen: weights of 7 are -1e-6 after one step with a learning rate of 1e-6. The optimiser is
# built while fit traces its step, and the copy of the weights that it trains starts at 0. After
# optimizer.build(model.trainable_variables), or run eagerly, they stay 7.
# It matters to: fine-tuning, which silently starts from nothing.
# What we do: our models build their optimiser before fit traces a step; for others the manual says
# so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check tensorflow-cpu==2.21.0 keras==3.15.1
cd "$work"
TF_CPP_MIN_LOG_LEVEL=3 KERAS_BACKEND=tensorflow "$work/venv/bin/python" -W ignore - <<'PY'
import keras
import numpy as np


def weights_after_a_step(build=False, eager=False):
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    model.set_weights([np.full([2, 1], 7.0), np.full([1], 7.0)])
    optimizer = keras.optimizers.ScheduleFreeAdamW(1e-6)
    if build:
        optimizer.build(model.trainable_variables)
    model.compile(optimizer, "mse", run_eagerly=eager)
    model.fit(np.ones([4, 2]), np.ones([4, 1]), verbose=0)
    return np.concatenate([np.ravel(weight) for weight in model.get_weights()])


plain, built = weights_after_a_step(), weights_after_a_step(build=True)
eager = weights_after_a_step(eager=True)
print("weights of 7 after a step:", plain, "built before:", built, "eager:", eager)
np.testing.assert_allclose(plain, 0.0, atol=1e-5)
np.testing.assert_allclose(built, 7.0, atol=1e-5)
np.testing.assert_allclose(eager, 7.0, atol=1e-5)
PY
