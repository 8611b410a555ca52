"""Sequence-level training: captions are drawn from the model, and a metric rewards them.

Words are actions as locations are: both go through `estimators`. Shapes: B images, M captions
per image, T words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import numpy as np
import tensorflow as tf

from sat_tf.config import AttentionConfig, SearchConfig
from sat_tf.layers.attention import Selection
from sat_tf.layers.decoder import DecoderOutput
from sat_tf.objectives.estimators import (
    Estimator,
    Rollout,
    by_sample,
    learning_signal,
    stochastic_loss,
    variance,
    whole_return,
)
from sat_tf.objectives.likelihood import (
    ATTENTION_MEANS,
    WORD_MEANS,
    attention_means,
    word_log_likelihood,
    word_mask,
    word_means,
)
from sat_tf.ops import check_seed, fold_in, replica_seed, step_seeds, uniform
from sat_tf.search import FLOOR, Hypotheses, Nest, Rules, Step, allowed_tokens, read_hypotheses, run
from sat_tf.text.vocabulary import END, PAD, START
from sat_tf.train_step import Batch, Terms, weighted
from sat_tf.util.fields import PositiveInt, Range, checked

Reward = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Image numbers `[N]` and captions `[N, T]`, ids up to <end>, to rewards `[N]`, floating.

A caption that was cut at the length limit has no <end>.
"""

_ESTIMATOR = Estimator(baseline="leave_one_out")
_REWARD_MEANS = ("reward", "words", "reward_variance", "advantage_variance")


class RewardObjective:
    """`-E[reward]` of captions drawn from the model, with leave-one-out REINFORCE.

    Captions are drawn as the model writes them: hard attention chooses its locations by
    `attention.inference`. If it samples them, a caption's log-probability covers its words and
    locations, otherwise its words. Dropout is off, so that the model that draws a caption
    is the one that scores it, and no word is drawn that a search may not write (such as <unk>).
    Soft attention keeps its doubly stochastic penalty.

    Args:
        reward: Scores captions.
        samples: M, at least 2: the other captions of an image are the baseline of each.
        attention: The configuration.
        search: Bounds the length of a caption, and says whether it may contain <unk>.

    References:
        Ranzato et al. (2016), arXiv:1511.06732; Rennie et al. (2017), arXiv:1612.00563, whose
        baseline is the greedy caption; Kool et al. (2019).
    """

    supports_jit = False
    """XLA cannot call the reward, a Python function."""

    @checked
    def __init__(
        self,
        reward: Reward,
        samples: Annotated[int, Range(2)],
        attention: AttentionConfig,
        search: SearchConfig,
    ) -> None:
        self.reward, self.samples = reward, samples
        self.attention, self.search = attention, search
        self.selection: Selection = attention.selection
        self.penalty_weight = attention.penalty_weight if attention.kind == "soft" else 0.0

    @property
    def log_names(self) -> tuple[str, ...]:
        """Keys of `Terms.means`."""
        names = WORD_MEANS + _REWARD_MEANS
        return names + (ATTENTION_MEANS if self.attention.kind != "none" else ())

    def describe(self, batch_size: int) -> dict[str, float | str]:
        """Returns the constants in effect, for the start of a run."""
        drawn = "words and locations" if self.selection == "sample" else "words"
        return {"samples": self.samples, "drawn": drawn, "penalty_weight": self.penalty_weight}

    def __call__(self, model, batch: Batch, seed: tf.Tensor) -> Terms:
        """Draws captions and computes their loss; see `Objective`.

        Args:
            model: The captioner.
            batch: `annotations` or `images`, one row per image, and `image_index` int `[B]`, by
                which the reward knows them.
            seed: int32 `[2]`, the same on all replicas.
        """
        seed = replica_seed(seed)
        annotations = model.annotate(batch)
        tokens = self.draw(model, annotations, seed)
        images = tf.repeat(batch["image_index"], self.samples)
        score = lambda *drawn: np.asarray(self.reward(*drawn), np.float32)  # noqa: E731
        # At the length limit there is an <end> that was not drawn, and is not rewarded.
        written = tokens[:, 1 : self.search.max_length + 1]
        rewards = tf.numpy_function(score, [images, written], tf.float32, stateful=False)
        outputs = self.read(model, annotations, tokens, seed)
        return self.terms(outputs, tokens[:, 1:], tf.ensure_shape(rewards, images.shape))

    def sample(self, model, annotations: tf.Tensor, seed: tf.Tensor) -> Hypotheses:
        """Draws M captions per image, side by side: `Hypotheses` of `B M` images, one each."""
        words, locations = tf.unstack(step_seeds(seed, 2))
        rows = self.samples
        step, state, _ = model.search_step(annotations, self.selection, locations)
        return sample(
            step,
            tf.nest.map_structure(lambda part: tf.repeat(part, rows, axis=0), state),
            batch_size=tf.shape(annotations)[0] * rows,
            max_length=self.search.max_length,
            seed=words,
            forbidden=self.search.forbidden,
        )

    def draw(self, model, annotations: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draws captions int32 `[B M, T + 1]` from <start> on, as long as the longest."""
        drawn = self.sample(model, annotations, seed)
        # The batch of a replica may be empty and has no longest caption then.
        longest = tf.maximum(tf.reduce_max(drawn.lengths), 1)
        ids = drawn.token_ids[:, 0, : longest + 1]
        return tf.pad(ids, [[0, 0], [1, 0]], constant_values=START)

    def read(
        self, model, annotations: tf.Tensor, tokens: tf.Tensor, seed: tf.Tensor
    ) -> DecoderOutput:
        """Reads captions from `draw` with gradient, under the same seed."""
        # The same seed, in rows of the same order, attends to the locations of the draw.
        _, locations = tf.unstack(step_seeds(seed, 2))
        return model.decoder(
            annotations,
            tokens[:, :-1],
            selection=self.selection,
            seed=locations,
            captions=self.samples,
        )

    def terms(self, outputs: DecoderOutput, targets: tf.Tensor, reward: tf.Tensor) -> Terms:
        """Computes the loss of captions that were drawn.

        Args:
            outputs: The decoder's, `B M` rows.
            targets: int32 `[B M, T]`, the words and <end>, padded with 0.
            reward: float32 `[B M]`.
        """
        steps = tf.shape(targets)[1]
        # An <end> at the length limit was not drawn.
        mask = word_mask(targets) * tf.cast(tf.range(steps) < self.search.max_length, tf.float32)
        # The tokens that the draw allowed: no caption begins with <end>.
        first, later = (
            allowed_tokens(outputs.logits.shape[-1], self.search.forbidden, first)
            for first in (True, False)
        )
        allowed = tf.where(tf.range(steps)[:, tf.newaxis] == 0, first, later)
        logits = tf.where(allowed, outputs.logits, FLOOR)
        log_lik = word_log_likelihood(logits, targets, mask)
        ends = tf.one_hot(steps - 1, steps)
        rollout = Rollout(
            log_prob=by_sample(log_lik + mask * outputs.log_prob, self.samples),
            entropy=None,
            log_lik=tf.zeros_like(by_sample(log_lik, self.samples)),
            reward=by_sample(reward[:, tf.newaxis] * ends, self.samples),
            mask=by_sample(mask, self.samples),
        )
        signal = learning_signal(rollout, _ESTIMATOR)
        loss = stochastic_loss(rollout, signal, _ESTIMATOR)
        words, images = tf.reduce_sum(mask), tf.cast(tf.shape(rollout.mask)[1], tf.float32)
        means = word_means(outputs, log_lik, mask, words)
        once = tf.ones_like(whole_return(rollout.reward))
        is_word = (targets != PAD) & (targets != END)
        lengths = tf.reduce_sum(tf.cast(is_word, tf.float32), axis=-1)
        rewards = {
            "reward": tf.reduce_mean(reward),
            "words": tf.reduce_mean(lengths),
            "reward_variance": variance(signal.returns, once),
            "advantage_variance": variance(signal.advantage, once),
        }
        means |= weighted(rewards, images)
        if self.attention.kind != "none":
            means |= attention_means(outputs, mask, words, images)
        if self.penalty_weight:
            loss += self.penalty_weight * means["penalty"][0]
        return Terms(loss, means)


@checked
def sample(
    step: Step,
    state: Nest,
    *,
    batch_size: int | tf.Tensor,
    max_length: PositiveInt,
    seed: tf.Tensor | Sequence[int],
    forbidden: Sequence[int] = (PAD, START),
) -> Hypotheses:
    """Draws one caption per image: `y_t ~ softmax(log_probs)`.

    Tokens that may not be generated are left out of the softmax; the result's log-probabilities
    are those of `step`. Other arguments are those of `beam_search` with `K = 1`.

    Args:
        seed: int32 `[2]`; the same seed gives the same captions. The draw for an image depends on
            its place in the batch, not on the other images.

    Raises:
        ValueError: As in `beam_search`, or the seed is of another shape.
    """
    rules = Rules(1, max_length, 0.0, forbidden)
    check_seed(seed)
    seed = tf.convert_to_tensor(seed, tf.int32)

    def select(index, live: tf.Tensor, log_probs: tf.Tensor):
        # The arg max of Gumbel-perturbed logits is a draw from their softmax, and a valid index
        # even for a row without any allowed token.
        drawn = uniform(tf.shape(log_probs), fold_in(seed, index))
        noisy = log_probs - tf.math.log(-tf.math.log(drawn + 1e-30))
        token = tf.argmax(noisy, axis=-1, output_type=tf.int32)[:, None]
        log_prob = live + tf.gather(log_probs, token, batch_dims=1)
        return tf.zeros_like(token), token, log_prob

    return read_hypotheses(run(step, state, select, batch_size, rules), batch_size, rules)
