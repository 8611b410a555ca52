#!/usr/bin/env bash
# The same top_k graph ranks NaN first in TensorFlow and last in LiteRT.
#
# Seen with: TensorFlow 2.21.0 on a CPU, ai-edge-litert 2.3.0.
# A good guess: a converted graph gives the same indices, NaN or not.
# What is seen: for [nan, 1, 2, nan, 0], TensorFlow returns the indices 0, 2, 1 and LiteRT 2, 1, 4.
# It matters to: beam search on a device: a NaN wins in one runtime and disappears in the other.
# What we do: our search bars what is not finite before it takes the largest.
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


class Top(tf.Module):
    """The three largest values."""

    @tf.function(input_signature=[tf.TensorSpec([5], tf.float32)])
    def best(self, x):
        values, indices = tf.math.top_k(x, k=3)
        return {"values": values, "indices": indices}


top = Top()
tf.saved_model.save(top, "top", signatures=top.best.get_concrete_function())
graph = tf.lite.TFLiteConverter.from_saved_model("top").convert()
lite = Interpreter(model_content=graph).get_signature_runner()
x = np.array([np.nan, 1, 2, np.nan, 0], np.float32)
ours, theirs = top.best(x)["indices"].numpy().tolist(), lite(x=x)["indices"].tolist()
print("TensorFlow:", ours, "LiteRT:", theirs)
assert ours == [0, 2, 1] and theirs == [2, 1, 4], (ours, theirs)
plain = np.array([0, 1, 2, 2, 3], np.float32)
assert top.best(plain)["indices"].numpy().tolist() == lite(x=plain)["indices"].tolist() == [4, 2, 3]
PY
