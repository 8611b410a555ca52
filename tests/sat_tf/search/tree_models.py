"""Random models of tiny vocabularies for the tests of the searches, and a brute-force search.

A model's state numbers the whole prefix and indexes a random table, so no two prefixes share
probabilities and a wrong parent anywhere changes the answer.
"""

import itertools

import numpy as np
import tensorflow as tf

from sat_tf.objectives.reward import sample
from sat_tf.search import beam_search
from sat_tf.text.vocabulary import END, PAD, START

VOCABULARY = 6
MAX_LENGTH = 4
WORDS = tuple(set(range(VOCABULARY)) - {PAD, START, END})
LEAVES = sum(len(WORDS) ** n for n in range(1, MAX_LENGTH + 1))


class TreeModel:
    """Random log-probabilities for every prefix of every image of a batch."""

    def __init__(self, seed: int, images: int = 3, spread: float = 2.0):
        prefixes = sum(VOCABULARY**n for n in range(MAX_LENGTH + 1))
        rng = np.random.default_rng(seed)
        logits = rng.normal(size=(images, prefixes, VOCABULARY)) * spread
        self.set_logits(logits)

    def set_logits(self, logits: np.ndarray):
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        self.log_probs = log_probs.astype(np.float32)

    @property
    def images(self) -> int:
        return len(self.log_probs)

    @staticmethod
    def node(prefix) -> int:
        number = 0
        for token in prefix:
            number = number * VOCABULARY + token + 1
        return number

    def step(self, tokens, state):
        node = state["node"] * VOCABULARY + tokens + 1
        node = tf.where(state["first"], 0, node)
        # Rows not in use may run past the table.
        row = tf.minimum(node, self.log_probs.shape[1] - 1)
        log_probs = tf.gather_nd(self.log_probs, tf.stack([state["image"], row], axis=1))
        auxiliary = {"node": node, "pair": tf.cast(tf.stack([node, -node], 1), tf.float32)}
        state = {"node": node, "image": state["image"], "first": tf.zeros_like(state["first"])}
        return log_probs, state, auxiliary

    def step_with_constants(self, tokens, state, constants):
        """`step` with the image in its constants rather than in its state."""
        rows = tf.size(tokens) // tf.size(constants["image"])
        image = tf.repeat(constants["image"], rows)
        log_probs, state, auxiliary = self.step(tokens, state | {"image": image})
        return log_probs, {name: state[name] for name in ("node", "first")}, auxiliary

    def state(self, images=None):
        images = np.arange(self.images) if images is None else np.asarray(images)
        return {
            "node": np.zeros(len(images), np.int32),
            "image": images.astype(np.int32),
            "first": np.ones(len(images), bool),
        }

    def search(self, beam, images=None, **options):
        state = self.state(images)
        options = {"max_length": MAX_LENGTH, **options}
        size = len(state["image"])
        return numpy(beam_search(self.step, state, batch_size=size, beam=beam, **options))

    def log_prob(self, image: int, words) -> float:
        """Sums over the words, and over `END` for all but the longest."""
        tokens = [*words, END][:MAX_LENGTH]
        return sum(
            float(self.log_probs[image, self.node(words[:n]), token])
            for n, token in enumerate(tokens)
        )


def numpy(hypotheses):
    return tf.nest.map_structure(lambda x: x.numpy(), hypotheses)


def captions(hypotheses, image: int) -> list[tuple[int, ...]]:
    ids, lengths = hypotheses.token_ids[image], hypotheses.lengths[image]
    return [tuple(row[:n].tolist()) for row, n in zip(ids, lengths, strict=True)]


def ranked(model: TreeModel, image: int, sequences, power: float):
    scored = [(model.log_prob(image, w) / max(len(w), 1) ** power, w) for w in sequences]
    return sorted(scored, key=lambda pair: -pair[0])


def brute_force(model, image, power, words=WORDS):
    sequences = itertools.chain.from_iterable(
        itertools.product(words, repeat=n) for n in range(1, MAX_LENGTH + 1)
    )
    return ranked(model, image, sequences, power)


def reference_beam(model: TreeModel, image: int, beam: int, power: float):
    """The shrinking beam in plain Python."""
    live, finished = [(0.0, ())], []
    for length in range(MAX_LENGTH):
        table = model.log_probs[image]
        candidates = [
            (total + float(table[model.node(prefix), token]), prefix, token)
            for total, prefix in live
            for token in (*WORDS, END)
            if length > 0 or token != END
        ]
        candidates.sort(key=lambda candidate: -candidate[0])
        kept = candidates[: beam - len(finished)]
        finished += [prefix for _, prefix, token in kept if token == END]
        live = [(total, (*prefix, token)) for total, prefix, token in kept if token != END]
    return ranked(model, image, finished + [prefix for _, prefix in live], power)


def assert_same(hypotheses, image: int, expected):
    assert captions(hypotheses, image)[: len(expected)] == [words for _, words in expected]
    scores = [score for score, _ in expected]
    np.testing.assert_allclose(hypotheses.scores[image][: len(scores)], scores, rtol=1e-5)


def draws(model, count: int, seed, **options):
    images = np.zeros(count, np.int32)
    options = {"max_length": MAX_LENGTH, "forbidden": (), **options}
    return numpy(sample(model.step, model.state(images), batch_size=count, seed=seed, **options))


def captions_of_draws(drawn) -> list[tuple[int, ...]]:
    return [captions(drawn, image)[0] for image in range(len(drawn.lengths))]
