"""The FLOPs formula against a number by hand, and against the products in the decoder's graph."""

from __future__ import annotations

import math

import tensorflow as tf

from benchmarks.flops import forward_flops, image_flops, training_flops, word_flops
from benchmarks.shapes import FLICKR8K, TOY
from sat_tf.layers.decoder import RNNDecoder


def test_a_flickr8k_caption_by_hand():
    # L 49, D 1280, m = A = N = 512, K 2540: multiply-adds.
    keys, initial_state = 49 * 1280 * 512, 2 * 1280 * 512
    lstm = 2304 * 2048
    attention = 512 * 512 + 49 * 512 + 49 * 1280 + 512
    output = 512 * 512 + 1280 * 512 + 512 * 2540
    assert image_flops(FLICKR8K) == 2 * (keys + initial_state) == 66_846_720
    assert word_flops(FLICKR8K) == 2 * (lstm + attention + output) == 14_574_080
    assert training_flops(FLICKR8K, captions=1, words=12) == 725_207_040


def test_captions_share_nothing():
    alone = forward_flops(TOY, 1, 3) + forward_flops(TOY, 1, 5)
    assert forward_flops(TOY, 2, 8) == alone


def test_the_formula_counts_the_products_of_the_graph(monkeypatch):
    # Products within a branch are not among the graph's own: it is made of the branch for few rows.
    monkeypatch.setattr(tf, "cond", lambda many, in_parts, whole: whole())
    decoder = RNNDecoder(
        TOY.vocabulary_size,
        embedding_dim=TOY.embedding_dim,
        attention_dim=TOY.attention_dim,
        hidden_dim=TOY.hidden_dim,
    )
    decoder.build((None, TOY.locations, TOY.annotation_dim))

    @tf.function(autograph=False)
    def one_word(annotations, words):
        attended, state = decoder.begin(annotations)
        return decoder.step(attended, words, state, "expectation")

    annotations = tf.TensorSpec([1, TOY.locations, TOY.annotation_dim])
    graph = one_word.get_concrete_function(annotations, tf.TensorSpec([1], tf.int32)).graph
    assert sum(map(product_flops, graph.get_operations())) == forward_flops(TOY, 1, 1)


def product_flops(operation: tf.Operation) -> int:
    """Two for each element of the result and of the sum behind it; 0 for no product."""
    transposed = {"MatMul": "transpose_a", "BatchMatMulV2": "adj_x"}.get(operation.type)
    assert transposed or "MatMul" not in operation.type and operation.type != "Einsum"
    if transposed is None:
        return 0
    rows, columns = operation.inputs[0].shape[-2:]
    summed = rows if operation.get_attr(transposed) else columns
    # Rows of a number not known before run time are those of distinct words: here of one.
    rows_and_columns = (1 if size is None else size for size in operation.outputs[0].shape)
    return 2 * math.prod(rows_and_columns) * summed
