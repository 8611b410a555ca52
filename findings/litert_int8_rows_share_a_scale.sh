#!/usr/bin/env bash
# One large row spoils all rows of an int8 embedding in LiteRT, but not those of the same matrix in
# a product; a matrix that both read is then stored twice.
#
# Seen with: TensorFlow 2.21.0, ai-edge-litert 2.3.0.
# A good guess: weights are quantised alike wherever they are used, and stored once.
# What is seen: a table read by tf.gather has a single scale, so a row 1,000 times as large as the
# others rounds these to 0; in tf.matmul each output has a scale of its own. In float32 a table that
# both read is stored once, in int8 twice, once for each kind of scale.
# It matters to: captioners whose embeddings are also output weights, and to rare words: their rows
# may be rounded away by one that training let grow.
# What we do: captions of int8 graphs are compared with those of float32 before they are shipped.
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

table = np.random.default_rng(0).normal(size=[500, 64]).astype(np.float32)
table[7] *= 1000.0
query = np.random.default_rng(1).normal(size=[1, 64]).astype(np.float32)


def look_up(words):
    return tf.gather(table, words)


def score(query):
    return tf.matmul(query, table, transpose_b=True)


def converted(function, *specs, int8):
    traced = tf.function(function, specs, autograph=False).get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([traced], tf.Module())
    converter.optimizations = [tf.lite.Optimize.DEFAULT] if int8 else []
    return converter.convert()


def run(graph, value):
    lite = Interpreter(model_content=graph)
    lite.allocate_tensors()
    lite.set_tensor(lite.get_input_details()[0]["index"], value)
    lite.invoke()
    return lite.get_tensor(lite.get_output_details()[0]["index"])


words, rows = tf.TensorSpec([1], tf.int32), tf.TensorSpec([1, 64])
row = run(converted(look_up, words, int8=True), np.array([3], np.int32))[0]
scores = run(converted(score, rows, int8=True), query)[0]
exact = score(query).numpy()[0]
print("row 3 read as", np.unique(row), "was up to", np.abs(table[3]).max().round(2))
print("score of row 3", scores[3], "was", exact[3])
assert not row.any() and np.abs(table[3]).max() > 1.0
assert abs(scores[3] - exact[3]) < 0.5
both = lambda words, query: (look_up(words), score(query))
sizes = {int8: len(converted(both, words, rows, int8=int8)) for int8 in (False, True)}
print("bytes of a graph with both:", sizes, "the table:", table.nbytes)
assert sizes[False] < 1.1 * table.nbytes and sizes[True] > 2 * table.size
PY
