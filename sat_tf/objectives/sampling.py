"""Captions drawn from the model's distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from sat_tf.errors import invalid_value
from sat_tf.ops.draws import check_seed, fold_in, uniform
from sat_tf.search import Hypotheses, Nest, Step, make_rules, read_hypotheses, run
from sat_tf.vocabulary import PAD, START


def sample(
    step: Step,
    state: Nest,
    *,
    batch_size: int | tf.Tensor,
    max_length: int,
    seed: tf.Tensor | Sequence[int],
    temperature: float = 1.0,
    length_power: float = 0.0,
    forbidden: Sequence[int] = (PAD, START),
    min_length: int = 1,
) -> Hypotheses:
    """Draws one caption per image: `y_t ~ softmax(log_probs / temperature)`.

    Tokens that may not be generated are left out of the softmax. The result's log-probabilities
    are those of `step`, whatever the temperature. Other arguments as in `beam_search` with `K = 1`.

    Args:
        step: As in `beam_search`.
        state: As in `beam_search`.
        batch_size: `B`.
        max_length: The most words of a caption.
        seed: int32 `[2]`; the same seed gives the same captions. The draw for an image depends on
            its place in the batch, not on the other images.
        temperature: Above 0; below 1 sharpens.
        length_power: As in `beam_search`.
        forbidden: Token ids that are never generated.
        min_length: The fewest words of a caption.

    Returns:
        `Hypotheses`.

    Raises:
        ValueError: As in `beam_search`, the temperature is not above 0, or the seed is of
            another shape.
    """
    rules = make_rules(1, max_length, length_power, forbidden, min_length)
    if not 0.0 < temperature < math.inf:
        raise invalid_value(
            "temperature", "a number above 0 (its limit is `beam_search`, beam 1)", temperature
        )
    check_seed(seed)
    seed = tf.convert_to_tensor(seed, tf.int32)

    def select(index, live: tf.Tensor, log_probs: tf.Tensor):
        # The arg max of Gumbel-perturbed logits is a draw from their softmax, and a valid index
        # even for a row without any allowed token.
        drawn = uniform(tf.shape(log_probs), fold_in(seed, index))
        noisy = log_probs / temperature - tf.math.log(-tf.math.log(drawn + 1e-30))
        token = tf.argmax(noisy, axis=-1, output_type=tf.int32)[:, None]
        log_prob = live + tf.gather(log_probs, token, batch_dims=1)
        return tf.zeros_like(token), token, log_prob

    return read_hypotheses(run(step, state, select, batch_size, rules), batch_size, rules)
