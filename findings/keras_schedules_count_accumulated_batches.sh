#!/usr/bin/env bash
# With gradient_accumulation_steps=k a learning rate schedule runs k times as fast as iterations
# say.
#
# Seen with: Keras 3.15.1, TensorFlow 2.21.0.
# A good guess: a schedule is a function of optimizer.iterations, the number of updates.
# What is seen: a rate that should fall to 0 in 10 updates is 0 after 10 batches, and with k = 2
# after 5 updates, when optimizer.iterations is 5; the other 5 updates change nothing. On a count of
# its own, schedule(optimizer.iterations) is 0.5 while optimizer.learning_rate is 0.
# It matters to: warm-ups and decays of runs whose batch is too large for the device.
# What we do: the manual says to multiply decay_steps by k.
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

schedule = keras.optimizers.schedules.PolynomialDecay(1.0, decay_steps=10, end_learning_rate=0.0)


def run(accumulated):
    """Count, rate, the schedule at that count, and what the last half of 10 updates moved."""
    optimizer = keras.optimizers.SGD(
        schedule, gradient_accumulation_steps=accumulated if accumulated > 1 else None
    )
    weight = keras.Variable([0.0])
    optimizer.build([weight])
    at = []
    for batch in range(1, 10 * accumulated + 1):
        optimizer.apply([tf.ones([1])], [weight])
        if batch % (5 * accumulated) == 0:
            at.append((int(optimizer.iterations), float(optimizer.learning_rate), float(weight[0])))
    (count, rate, half), (_, _, end) = at
    return count, rate, float(schedule(count)), abs(end - half)


once, twice = run(1), run(2)
print("after 5 updates: count, rate, schedule(count), and what 5 more move:", once, twice)
np.testing.assert_allclose(once, [5, 0.5, 0.5, 1.5], rtol=1e-5)
np.testing.assert_allclose(twice, [5, 0.0, 0.5, 0.0], atol=1e-5)
PY
