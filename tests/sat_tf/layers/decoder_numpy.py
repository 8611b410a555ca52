"""The attention LSTM decoder in plain NumPy, and small layers to hold against it."""

import numpy as np
import tensorflow as tf

from sat_tf.layers.decoder import RNNDecoder

B, G, T, L, D, N, M, A, K = 2, 3, 4, 5, 6, 7, 3, 4, 8
SEED = tf.constant([3, 4])
SIZES = {"embedding_dim": M, "attention_dim": A, "hidden_dim": N}
KINDS = {
    "soft": {"attends": True, "selection": "expectation"},
    "hard argmax": {"attends": True, "selection": "argmax"},
    "none": {"attends": False, "selection": "expectation"},
}
UNIFORM = {"attends": True, "selection": "uniform"}
SAMPLED = {"attends": True, "selection": "sample"}


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def randomise(layer, scale=0.7):
    """Weights, biases included, that are nowhere zero."""
    layer.set_weights([scale * random(*w.shape, seed=i) for i, w in enumerate(layer.weights)])
    return layer


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def dense(layer, x):
    y = x @ layer.kernel.numpy()
    return y + layer.bias.numpy() if layer.use_bias else y


def lstm(layer, embeddings, context, hidden, cell):
    """Equations 1-3."""
    gates = (
        dense(layer.word_projection, embeddings)
        + dense(layer.context_projection, context)
        + dense(layer.recurrent_projection, hidden)
    )
    i, f, o, g = np.split(gates, 4, axis=-1)
    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(cell), cell


def initial(layer, mean):
    def mlp(layers):
        outputs = mean
        for part in layers[:-1]:
            outputs = np.maximum(dense(part.dense, outputs), 0.0)
        return np.tanh(dense(layers[-1], outputs))

    return mlp(layer.hidden_mlp), mlp(layer.memory_mlp)


def equation_7(layer, hidden, context, embeddings):
    outputs = dense(layer.hidden_projection, hidden) + dense(layer.context_projection, context)
    return dense(layer.word_projection, np.tanh(outputs + embeddings))


def by_hand(decoder, annotations, words, selection="expectation"):
    """The whole decoder, step by step: logits, alpha, beta."""
    if decoder.bottleneck is not None:
        annotations = np.maximum(dense(decoder.bottleneck, annotations), 0.0)
    hidden, cell = initial(decoder.initial_state, annotations.mean(axis=1))
    logits, alphas, betas = [], [], []
    for time in range(words.shape[1]):
        embeddings = decoder.embedding.embeddings.numpy()[words[:, time]]
        beta = np.ones([len(words), 1])
        if decoder.gate is not None:
            beta = sigmoid(dense(decoder.gate, hidden))
        if decoder.attends:
            inside = dense(decoder.attention.key_projection, annotations)
            inside = inside + dense(decoder.attention.query_projection, hidden)[:, None]
            alpha = softmax(np.tanh(inside) @ decoder.attention.score_vector.numpy())
            argmax = np.eye(L)[alpha.argmax(-1)]
            even = np.full_like(alpha, 1 / L)
            weights = {"expectation": alpha, "argmax": argmax, "uniform": even}[selection]
            context = beta * np.einsum("bl,bld->bd", weights, annotations)
        else:
            alpha = np.ones([len(words), 1])
            context = beta * annotations.mean(axis=1)
        hidden, cell = lstm(decoder.cell, embeddings, context, hidden, cell)
        logits.append(equation_7(decoder.deep_output, hidden, context, embeddings))
        alphas.append(alpha)
        betas.append(beta[:, 0])
    return np.stack(logits, 1), np.stack(alphas, 1), np.stack(betas, 1)


def build(layer, *shapes):
    """The layer built, with weights that are nowhere zero."""
    layer.build(*shapes)
    return randomise(layer)


def make_decoder(attends=True, **options):
    return build(RNNDecoder(K, attends=attends, **SIZES, **options), (None, None, D))


def make_batch():
    words = np.random.default_rng(1).integers(0, K, [B, T]).astype(np.int32)
    return random(B, L, D, seed=20), words


def run_both_ways(function, *arguments):
    """Eager and as a graph, which must agree."""
    eager, graph = function(*arguments), tf.function(function, autograph=False)(*arguments)
    for one, other in zip(tf.nest.flatten(eager), tf.nest.flatten(graph), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    return eager
