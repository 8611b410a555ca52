"""The bound that hard attention maximises, and its score-function gradient (eq. 10-12)."""

from __future__ import annotations

import keras
import tensorflow as tf

from sat_tf.config import Preset
from sat_tf.errors import invalid_value
from sat_tf.layers.attention import Selection, attention_entropy
from sat_tf.layers.decoder_types import DecoderOutput
from sat_tf.objectives.baselines import LearnedBaseline, MovingAverageBaseline
from sat_tf.objectives.caption_means import attention_means, word_means
from sat_tf.objectives.estimators import (
    Estimator,
    Rollout,
    action_returns,
    by_sample,
    learning_signal,
    reward_to_go,
    stochastic_loss,
)
from sat_tf.objectives.likelihood import LogLikelihoods, log_likelihoods, word_mask
from sat_tf.objectives.likelihood_objective import LikelihoodObjective
from sat_tf.objectives.replica_context import global_mean, replica_seed
from sat_tf.objectives.rollout_logs import ROLLOUT_LOGS, rollout_logs, weighted_mean
from sat_tf.objectives.soft_labels import SoftLabels
from sat_tf.objectives.terms import Terms, weighted


class HardAttentionObjective(LikelihoodObjective):
    """Lower bound on the likelihood of a caption whose locations are drawn.

    `L_s = E[log p(y|s, a)] <= log p(y|a)` (or the importance-weighted bound), its gradient in
    the attention weights by `estimators`, and lambda_e times the entropy of alpha.

    Args:
        attention: The configuration; its `kind` is hard.
        label_smoothing: Share of the target spread over the vocabulary, in [0, 1).
        distillation_weight: Share of the target that other captioners predict, in [0, 1].

    References:
        Xu et al. (2015), Sec. 4.1, arXiv:1502.03044.
    """

    selection: Selection = "sample"

    @property
    def preset(self) -> Preset:
        """Constants of the estimator."""
        return self.attention.estimator

    @property
    def samples(self) -> int:
        """M, samples per caption."""
        return self.preset.samples

    @property
    def log_names(self) -> tuple[str, ...]:
        """Keys of `Terms.means`."""
        return (*super().log_names, "reward", "baseline", *ROLLOUT_LOGS)

    def make_baseline(self, state_dim: int) -> keras.layers.Layer | None:
        """Makes the baseline that has state, if any; `state_dim` is the width of the LSTM."""
        if self.preset.baseline == "moving_average":
            return MovingAverageBaseline(self.attention.baseline_decay)
        if self.preset.baseline == "learned":
            return LearnedBaseline(state_dim, name="baseline")
        return None

    def draw_expectation(self, seed: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
        """Draws the switch per caption, or once for the minibatch of all replicas.

        Args:
            seed: int32 `[2]`, the same on all replicas.
            size: B.

        Returns:
            bool `[B]`.
        """
        once = self.preset.switch_per_minibatch
        own = replica_seed(seed, 0 if once else None)
        _, switch = tf.unstack(tf.random.experimental.stateless_split(own, 2))
        uniform = tf.random.stateless_uniform([1 if once else size], switch)
        return tf.broadcast_to(uniform < self.preset.expectation_probability, [size])

    def estimator(self, batch_size: tf.Tensor | float) -> Estimator:
        """The estimator with the effective lambdas per caption in a batch of this size."""
        preset = self.preset
        scale = batch_size if preset.times_batch else 1.0
        return Estimator(
            preset.reward_weight * scale,
            preset.entropy_weight * scale,
            bound=preset.bound,
            baseline=preset.baseline,
            to_go=preset.reward_to_go,
        )

    def describe(self, batch_size: int) -> dict[str, float | str]:
        """Describes the objective by its effective constants, for the start of a run."""
        preset, estimator = self.preset, self.estimator(float(batch_size))
        baseline = preset.baseline.replace("_", " ")
        if preset.baseline == "moving_average":
            baseline += f", decay {self.attention.baseline_decay}"
        return {
            "preset": self.attention.preset,
            "samples per caption": preset.samples,
            "bound": preset.bound.replace("_", "-"),
            "lambda_r per caption": estimator.reward_weight,
            "return": self._describe_return(),
            "baseline": baseline,
            "lambda_e per caption": estimator.entropy_weight,
            "expectation probability": preset.expectation_probability,
            "switch drawn for each": "minibatch" if preset.switch_per_minibatch else "image",
            **super().describe(batch_size),
        }

    def _describe_return(self) -> str:
        preset = self.preset
        if preset.bound == "importance_weighted":
            past = ", the past in the baseline" if preset.reward_to_go else ""
            return f"the bound{past}"
        if preset.reward_to_go:
            return f"log p to go{' over the words' if preset.reward_per_word else ''}"
        return "mean log p per word" if preset.reward_per_word else "log p of the caption"

    def terms(
        self,
        outputs: DecoderOutput,
        targets: tf.Tensor,
        expectation: tf.Tensor | None = None,
        baseline: keras.layers.Layer | None = None,
        global_size: tf.Tensor | None = None,
        predicted: SoftLabels | None = None,
    ) -> Terms:
        """Computes the loss of captions that were read; see `LikelihoodObjective.terms`.

        Without `expectation`, every caption was read with locations that were drawn.
        """
        if expectation is None:
            expectation = tf.zeros([tf.shape(targets)[0]], tf.bool)
        rows, labels = targets, self.labels(targets, predicted)
        if self.samples > 1:
            rows = tf.repeat(targets, self.samples, axis=0)
            labels = None if labels is None else labels.repeated(self.samples)
        mask, caption_mask = word_mask(rows), word_mask(targets)
        size = tf.shape(targets)[0] if global_size is None else global_size
        estimator = self.estimator(tf.cast(size, tf.float32))
        scored = log_likelihoods(outputs.logits, rows, mask, labels)
        rollout = self._rollout(outputs, scored, mask, expectation, baseline)
        returns = _caption_returns(action_returns(rollout.reward, estimator), caption_mask)
        self._check_baseline(baseline)
        average, mean_return = 0.0, None
        if isinstance(baseline, MovingAverageBaseline):
            mean_return = global_mean(returns)
            average = baseline(mean_return)
        signal = learning_signal(rollout, estimator, average)
        loss = stochastic_loss(rollout, signal, estimator)
        words, captions = tf.reduce_sum(caption_mask), tf.cast(tf.shape(targets)[0], tf.float32)
        means = word_means(outputs, scored.exact, mask, words)
        means |= attention_means(outputs, mask, words, captions)
        value = _mean_baseline(signal.baseline, rollout.mask)
        means |= weighted({"reward": tf.reduce_mean(returns), "baseline": value}, captions)
        drawn = tf.reduce_sum(tf.cast(~expectation, tf.float32))
        alpha = tf.nn.softmax(outputs.alignment_scores)
        peakedness = by_sample(tf.reduce_sum(tf.square(alpha), axis=-1), self.samples)
        exact = by_sample(scored.exact, self.samples)
        logs = rollout_logs(rollout, signal, estimator, exact, peakedness)
        return Terms(loss, means | weighted(logs, drawn), mean_return)

    def _check_baseline(self, baseline: keras.layers.Layer | None) -> None:
        kinds = {"moving_average": MovingAverageBaseline, "learned": LearnedBaseline}
        kind = kinds.get(self.preset.baseline)
        if kind is not None and not isinstance(baseline, kind):
            expected = f"the {kind.__name__} of a model whose configuration has this preset"
            raise invalid_value("baseline", expected, type(baseline).__name__)

    def _rollout(
        self,
        outputs: DecoderOutput,
        scored: LogLikelihoods,
        mask: tf.Tensor,
        expectation: tf.Tensor,
        baseline: keras.layers.Layer | None,
    ) -> Rollout:
        """Arranges rows `[B M, T]` as the samples of a rollout."""
        samples, preset = self.samples, self.preset
        drawn = by_sample(mask, samples) * tf.cast(~expectation, tf.float32)[:, tf.newaxis]
        words = tf.reduce_sum(mask, axis=-1, keepdims=True)
        reward = tf.stop_gradient(scored.exact)
        per_word = tf.math.divide_no_nan(reward, words)  # a caption of padding has no word
        value = None
        if isinstance(baseline, LearnedBaseline):
            # The range of a caption's log p depends mostly on how many words it sums over.
            left = reward_to_go(mask) if preset.reward_to_go else words
            scale = tf.math.divide_no_nan(left, words) if preset.reward_per_word else left
            value = by_sample(baseline(outputs.hidden, scale), samples)
        entropy = mask * attention_entropy(outputs.alignment_scores)
        return Rollout(
            log_prob=by_sample(outputs.log_prob, samples),
            entropy=by_sample(entropy, samples),
            log_lik=by_sample(scored.soft, samples),
            reward=by_sample(per_word if preset.reward_per_word else reward, samples),
            mask=drawn,
            value=value,
        )


def _caption_returns(returns: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Mean return over samples and words, whether or not locations were drawn; `[B]`."""
    returns = tf.reduce_mean(returns, axis=0)
    if returns.shape[-1] == 1:
        return returns[:, 0]
    total = tf.reduce_sum(returns * mask, axis=-1)
    return tf.math.divide_no_nan(total, tf.reduce_sum(mask, axis=-1))


def _mean_baseline(baseline: tf.Tensor | float, mask: tf.Tensor) -> tf.Tensor:
    """A scalar baseline itself; the mean of any other over the locations drawn."""
    baseline = tf.convert_to_tensor(baseline)
    return baseline if baseline.shape.rank == 0 else weighted_mean(baseline, mask)
