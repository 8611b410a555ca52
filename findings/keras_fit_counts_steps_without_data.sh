#!/usr/bin/env bash
# fit takes an optimiser's step more than there are batches in each epoch of data of unknown length.
#
# Seen with: Keras 3.15.1, TensorFlow 2.21.0.
# A good guess: optimizer.iterations is the number of batches trained on.
# What is seen: 4 epochs of 3 batches leave 16 iterations, and weight decay is applied 16 times, if
# the dataset does not know its length (from_generator, filter). The compiled step counts and decays
# without waiting for the batch that the ended iterator does not give. Run eagerly, with
# assert_cardinality, or with repeat() and steps_per_epoch it is 12.
# It matters to: schedules, weight decay and runs that are resumed by their number of steps.
# What we do: our train step waits for the loss before it counts.
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

EPOCHS, BATCHES, RATE = 4, 3, 0.05
pair = (np.ones([1, 1], "float32"), np.ones([1, 1], "float32"))
known = tf.data.Dataset.from_tensors(pair).repeat(BATCHES)
unknown = known.filter(lambda x, y: True)
told = unknown.apply(tf.data.experimental.assert_cardinality(BATCHES))


def fitted(data, eager=False, **options):
    """The optimiser's count, and how often the weight, whose gradient is 0, was decayed."""
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1, use_bias=False)])
    model.set_weights([np.ones([1, 1])])
    optimizer = keras.optimizers.SGD(1.0, weight_decay=RATE)
    model.compile(optimizer, lambda _, found: 0.0 * found, run_eagerly=eager)
    model.fit(data, epochs=EPOCHS, verbose=0, **options)
    decays = np.log(model.get_weights()[0].item()) / np.log(1.0 - RATE)
    return int(optimizer.iterations), round(float(decays), 2)


seen = {
    "known": fitted(known),
    "unknown": fitted(unknown),
    "unknown, eager": fitted(unknown, eager=True),
    "told": fitted(told),
    "repeated": fitted(unknown.repeat(), steps_per_epoch=BATCHES),
}
print("count and decays of 12 batches:", seen)
assert seen.pop("unknown") == (16, 16.0), seen
assert set(seen.values()) == {(12, 12.0)}, seen
PY
