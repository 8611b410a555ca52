#!/usr/bin/env bash
# A mask of -1e9 becomes -65504 in a float16 LiteRT graph, whose arithmetic stays float32.
#
# Seen with: TensorFlow 2.21.0, ai-edge-litert 2.3.0.
# A good guess: a constant outside float16 stays float32, becomes infinite, or is refused.
# What is seen: only its storage is float16, and it is cut to the largest number of that type,
# without a message; sums of log-probabilities that pass -65504 then rank above what was masked.
# It matters to: masks and floors inside graphs that are exported with float16 weights.
# What we do: our graphs hold no floor; forbidden words are barred by the host, with -inf.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check tensorflow==2.21.0 ai-edge-litert==2.3.0
cd "$work"
TF_CPP_MIN_LOG_LEVEL=3 "$work/venv/bin/python" -W ignore - <<'PY'
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

mask = np.where(np.arange(4096) % 2, 0.0, -1e9).astype(np.float32)
masked = tf.function(lambda x: x + mask, [tf.TensorSpec([1, 4096])], autograph=False)


def run(types):
    traced = masked.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([traced], tf.Module())
    if types:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.target_spec.supported_types = types
    lite = Interpreter(model_content=converter.convert())
    lite.allocate_tensors()
    lite.set_tensor(lite.get_input_details()[0]["index"], np.zeros([1, 4096], np.float32))
    lite.invoke()
    found = lite.get_tensor(lite.get_output_details()[0]["index"])
    return found.dtype, float(found.min())


seen = {"float32": run([]), "float16": run([tf.float16])}
print(seen)
assert seen == {"float32": (np.float32, -1e9), "float16": (np.float32, -65504.0)}, seen
PY
