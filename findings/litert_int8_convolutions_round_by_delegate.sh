#!/usr/bin/env bash
# In an int8 LiteRT graph a bright pixel rounds away all others, or none: XNNPACK decides.
#
# Seen with: TensorFlow 2.21.0, ai-edge-litert 2.3.0.
# A good guess: a graph with int8 weights computes the same numbers but for rounding wherever it
# runs.
# What is seen: activations are rounded as the graph runs. In a 1 x 1 convolution each pixel has a
# scale of its own under XNNPACK, the default on a computer, and the picture has one scale without
# it: one pixel that is 1,000 times as large then rounds the others to 0. A 3 x 3 convolution has
# one scale for the picture with both, a matrix product a scale per row with both.
# It matters to: equality that was measured on a computer and is promised for a device.
# What we do: the manual says that the equality measured need not hold on a device.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check \
  tensorflow-cpu==2.21.0 ai-edge-litert==2.3.0
cd "$work"
TF_CPP_MIN_LOG_LEVEL=3 KERAS_BACKEND=tensorflow "$work/venv/bin/python" -W ignore - <<'PY'
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter, OpResolverType

rng = np.random.default_rng(0)
kernel = rng.normal(size=[3, 3, 64, 64]).astype("float32")
image = rng.normal(size=[1, 8, 8, 64]).astype("float32")
bright = image.copy()
bright[0, 0, 0] *= 1000.0
resolvers = {
    "XNNPACK": OpResolverType.AUTO,
    "without": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
}
layers = {
    "3 x 3": lambda x: tf.nn.conv2d(x, kernel, 1, "SAME"),
    "1 x 1": lambda x: tf.nn.conv2d(x, kernel[:1, :1], 1, "SAME"),
    "product": lambda x: tf.matmul(tf.reshape(x, [64, 64]), kernel[0, 0]),
}


def converted(layer):
    spec = [tf.TensorSpec(image.shape)]
    traced = tf.function(layer, spec, autograph=False).get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([traced], tf.Module())
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    return converter.convert()


def far_corner(graph, resolver, value):
    lite = Interpreter(model_content=graph, experimental_op_resolver_type=resolver)
    lite.allocate_tensors()
    lite.set_tensor(lite.get_input_details()[0]["index"], value)
    lite.invoke()
    return lite.get_tensor(lite.get_output_details()[0]["index"]).reshape(8, 8, 64)[4:, 4:]


seen = {}
for name, layer in layers.items():
    graph = converted(layer)
    exact = layer(image).numpy().reshape(8, 8, 64)[4:, 4:]
    for delegate, resolver in resolvers.items():
        found = far_corner(graph, resolver, bright)
        error = float(np.abs(found - exact).max() / np.abs(exact).max())
        print(f"{name} {delegate}: far from the bright pixel off by {100 * error:.0f} %")
        seen[name, delegate] = error > 0.3
lost = [key for key, value in seen.items() if value]
assert lost == [("3 x 3", "XNNPACK"), ("3 x 3", "without"), ("1 x 1", "without")], lost
PY
