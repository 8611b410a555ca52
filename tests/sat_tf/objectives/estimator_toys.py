"""Stochastic models small enough to list everything they can draw: float64, no random draw.

The toy is autoregressive: L = 3 locations, T = 2 steps, the second location drawn from a
distribution which the first one chose. Exact gradients are central differences of a plain NumPy
sum over all samples.
"""

import itertools

import numpy as np
import tensorflow as tf

from sat_tf.objectives.estimators import Rollout
from tests.sat_tf.objectives.decoder_outputs import log_softmax

L, T = 3, 2
WORDS = (1, 0)  # The caption: one of two words at each step.
PATHS = list(itertools.product(range(L), repeat=T))
NAMES = ("first", "second", "words_1", "words_2")
VALUES = np.array([-1.3, 0.4, -2.0, -0.6])  # Before the first location; after each of the three.


class Prescribed:
    """Stands for the multinoulli and draws what it is told, a place a row at each step."""

    def __init__(self, paths):
        self.left = list(np.transpose(paths))

    def __call__(self, scores):
        self.log_alpha = tf.nn.log_softmax(scores)
        return self

    def sample(self, seed=None):
        return tf.one_hot(self.left.pop(0), self.log_alpha.shape[-1])

    def log_prob(self, drawn):
        return tf.reduce_sum(drawn * self.log_alpha, axis=-1)


def make_toy():
    """Logits of the locations (first, second given first) and of the words given the locations."""
    rng = np.random.default_rng(0)
    shapes = {"first": [L], "second": [L, L], "words_1": [L, 2], "words_2": [L, L, 2]}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def path_log_probs(toy):
    """log p(s|a) and log p(y|s,a) of each of the nine paths, in NumPy."""
    first, second, words_1, words_2 = (log_softmax(toy[name]) for name in NAMES)
    log_prob = [first[s] + second[s, u] for s, u in PATHS]
    log_lik = [words_1[s, WORDS[0]] + words_2[s, u, WORDS[1]] for s, u in PATHS]
    return np.array(log_prob), np.array(log_lik)


def exact_bound(toy, bound="elbo", samples=1):
    """The expectation of a bound over every tuple of samples, in NumPy."""
    log_prob, log_lik = path_log_probs(toy)
    tuples = np.array(list(itertools.product(range(len(PATHS)), repeat=samples)))
    of_tuple = log_lik[tuples].mean(-1)
    if bound == "importance_weighted":
        of_tuple = np.log(np.exp(log_lik[tuples]).mean(-1))
    return np.exp(log_prob[tuples].sum(-1)) @ of_tuple


def exact_gradient(toy, function=exact_bound, width=1e-5):
    gradients = {}
    for name, value in toy.items():
        gradients[name] = np.zeros_like(value)
        for index in np.ndindex(value.shape):
            high, low = value.copy(), value.copy()
            high[index] += width
            low[index] -= width
            difference = function(toy | {name: high}) - function(toy | {name: low})
            gradients[name][index] = difference / (2 * width)
    return gradients


def rollout(variables, paths):
    """The toy made to draw `paths`, one caption, `M = len(paths)` samples."""
    first, both = np.array(paths)[:, 0], np.array(paths)
    p_1, p_2 = (tf.nn.log_softmax(variables[name]) for name in ("first", "second"))
    words_1, words_2 = (tf.nn.log_softmax(variables[name]) for name in ("words_1", "words_2"))

    def steps(one, two):
        return tf.stack([one, two], axis=-1)[:, tf.newaxis]

    log_prob = steps(tf.gather(p_1, first), tf.gather_nd(p_2, both))
    log_lik = steps(
        tf.gather(words_1[:, WORDS[0]], first), tf.gather_nd(words_2[..., WORDS[1]], both)
    )
    value = steps(tf.fill([len(paths)], VALUES[0]), tf.gather(VALUES[1:], first))
    reward, mask = tf.stop_gradient(log_lik), tf.ones_like(log_prob)
    return Rollout(log_prob, None, log_lik, reward, mask, value)


def choose(made, samples):
    """The rollout of some samples of `made`."""
    return Rollout(*(None if part is None else tf.gather(part, samples) for part in made))


def over_every_tuple(samples, function):
    """`function(paths [M])` of every tuple of samples, stacked, in one graph loop."""
    tuples = tf.constant(list(itertools.product(range(len(PATHS)), repeat=samples)))
    return tf.map_fn(function, tuples, fn_output_signature=tf.float64)


def probabilities(every_path, samples):
    log_prob = tf.reduce_sum(every_path.log_prob, axis=[1, 2])
    return over_every_tuple(
        samples, lambda paths: tf.exp(tf.reduce_sum(tf.gather(log_prob, paths)))
    )


def expected_gradient(toy, samples, loss):
    """`-E[grad loss]` over every tuple of `samples` paths, weighted by its probability."""
    variables = {name: tf.Variable(value) for name, value in toy.items()}

    @tf.function(autograph=False)
    def run():
        with tf.GradientTape() as tape:
            every_path = rollout(variables, PATHS)
            weights = tf.stop_gradient(probabilities(every_path, samples))
            losses = over_every_tuple(samples, lambda paths: loss(choose(every_path, paths)))
            expected = tf.reduce_sum(weights * losses)
        return tf.reduce_sum(weights), tape.gradient(expected, variables)

    total, gradients = run()
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)
    return {name: -g.numpy() for name, g in gradients.items()}
