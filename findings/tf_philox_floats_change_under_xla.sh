#!/usr/bin/env bash
# TensorFlow's stateless uniform floats change under XLA although the random integers do not.
#
# Seen with: TensorFlow 2.21.0.
# A good guess: with the algorithm named (philox) and a seed, compiled or not, the draws are equal,
# as they are for integers.
# What is seen: the same integers, but floats of their low 23 bits without XLA, and of their high 23
# bits with it: none of them is equal.
# It matters to: whoever turns jit_compile on to go faster and expects the same dropout, sampled
# locations and resumed run.
# What we do: uniform draws of our own are made of integers, so that both ways are equal.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check tensorflow-cpu==2.21.0
TF_CPP_MIN_LOG_LEVEL=3 "$work/venv/bin/python" -W ignore - <<'PY'
import numpy as np
import tensorflow as tf

seed = tf.constant([1, 2])


def draw(dtype, compiled):
    """Draws 1000 numbers, of any value or in [0, 1)."""
    bounds = {} if dtype == tf.float32 else {"minval": None, "maxval": None}
    of_seed = lambda s: tf.random.stateless_uniform([1000], s, dtype=dtype, alg="philox", **bounds)
    return tf.function(of_seed, jit_compile=compiled, autograph=False)(seed).numpy()


plain, compiled = (draw(tf.uint32, one) for one in (False, True))
floats, compiled_floats = (draw(tf.float32, one) for one in (False, True))
low = (plain & 0x7FFFFF) / np.float32(2**23)
high = (plain >> 9) / np.float32(2**23)
print("first floats:", floats[:3], "under XLA:", compiled_floats[:3])
np.testing.assert_array_equal(plain, compiled)
np.testing.assert_array_equal(floats, low.astype(np.float32))
np.testing.assert_array_equal(compiled_floats, high.astype(np.float32))
assert not np.any(floats == compiled_floats)
PY
