"""The bound that hard attention maximises, and its score-function gradient (eq. 10-12)."""

from __future__ import annotations

import keras
import tensorflow as tf

from sat_tf.config import AttentionConfig
from sat_tf.layers.attention import attention_entropy
from sat_tf.layers.decoder import DecoderOutput
from sat_tf.objectives.estimators import (
    ROLLOUT_LOGS,
    Estimator,
    MovingAverageBaseline,
    Rollout,
    action_returns,
    by_sample,
    learning_signal,
    rollout_logs,
    stochastic_loss,
    weighted_mean,
)
from sat_tf.objectives.likelihood import (
    SoftLabels,
    SoftObjective,
    attention_means,
    log_likelihoods,
    soft_labels,
    supervision,
    word_mask,
    word_means,
)
from sat_tf.ops import global_mean, global_size, replica_seed, step_seeds, uniform
from sat_tf.train_step import Batch, Terms, weighted
from sat_tf.util.errors import invalid_value


class HardObjective(SoftObjective):
    """Lower bound on the likelihood of a caption over drawn locations.

    `L_s = E[log p(y|s, a)] <= log p(y|a)` (or the importance-weighted bound), its gradient in
    the attention weights by `estimators`, and lambda_e times the entropy of alpha.

    Arguments are those of `SoftObjective`, with hard attention.

    References:
        Xu et al. (2015), Sec. 4.1, arXiv:1502.03044.
    """

    def __init__(self, attention: AttentionConfig, *args, **kwargs) -> None:
        super().__init__(attention, *args, **kwargs)
        self.preset = attention.estimator
        self.samples = self.preset.samples

    @property
    def log_names(self) -> tuple[str, ...]:
        """Keys of `Terms.means`."""
        return (*super().log_names, "reward", "baseline", *ROLLOUT_LOGS)

    def describe(self, batch_size: int) -> dict[str, float | str]:
        """Returns the constants in effect, for the start of a run."""
        used = self.estimator(float(batch_size))
        weights = {name: getattr(used, name) for name in ("reward_weight", "entropy_weight")}
        return {"preset": self.attention.preset, **vars(self.preset), **weights}

    def __call__(self, model, batch: Batch, seed: tf.Tensor) -> Terms:
        """Reads a batch of captions along drawn locations and computes their loss.

        See `Objective`; the batch is that of `SoftObjective`.
        """
        draws, _ = tf.unstack(step_seeds(replica_seed(seed), 2))
        expectation = self.draw_expectation(seed, tf.shape(batch["tokens"])[0])
        outputs = model(
            batch,
            training=True,
            selection="sample",
            seed=draws,
            use_expectation=expectation,
            samples=self.samples,
        )
        return self.terms(
            outputs,
            batch["tokens"][:, 1:],
            expectation,
            model.baseline,
            **self.taught(batch),
        )

    def draw_expectation(self, seed: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
        """Draws the switch per caption, or once for the minibatch of all replicas.

        bool `[B]`, true for captions that take the expectation instead of a sample. The seed,
        int32 `[2]`, is the same on all replicas.
        """
        once = self.preset.switch_per_minibatch
        own = replica_seed(seed, 0 if once else None)
        _, switch = tf.unstack(step_seeds(own, 2))
        drawn = uniform([1 if once else size], switch)
        return tf.broadcast_to(drawn < self.preset.expectation_probability, [size])

    def estimator(self, batch_size: tf.Tensor | float) -> Estimator:
        """Returns the estimator with the effective lambdas per caption in a batch of this size."""
        preset = self.preset
        scale = batch_size if preset.times_batch else 1.0
        return Estimator(
            preset.reward_weight * scale,
            preset.entropy_weight * scale,
            bound=preset.bound,
            baseline=preset.baseline,
            to_go=preset.reward_to_go,
        )

    def terms(
        self,
        outputs: DecoderOutput,
        targets: tf.Tensor,
        expectation: tf.Tensor | None = None,
        baseline: keras.layers.Layer | None = None,
        predicted: SoftLabels | None = None,
        maps: tf.Tensor | None = None,
    ) -> Terms:
        """Computes the loss of captions that were read.

        Args:
            outputs: The decoder's, M rows per caption, side by side.
            targets: This argument, `predicted` and `maps` are those of `SoftObjective.terms`.
            expectation: bool `[B]`, from `draw_expectation`; None if all locations were drawn.
            baseline: From `make_baseline`.
        """
        preset, samples, size = self.preset, self.samples, tf.shape(targets)[0]
        averaged = preset.baseline == "moving_average"
        if averaged and not isinstance(baseline, MovingAverageBaseline):
            expected = "the MovingAverageBaseline of a model whose configuration has this preset"
            raise invalid_value("baseline", expected, type(baseline).__name__)
        if expectation is None:
            expectation = tf.zeros([size], tf.bool)
        estimator = self.estimator(global_size(size) if preset.times_batch else 1.0)
        labels = soft_labels(targets, self.label_smoothing, predicted, self.distillation_weight)
        labels = None if labels is None else labels.repeated(samples)
        rows = tf.repeat(targets, samples, axis=0)
        mask = word_mask(rows)
        log_lik = log_likelihoods(outputs.logits, rows, mask, labels)
        reward = tf.stop_gradient(log_lik.exact)
        if preset.reward_per_word:  # a caption of padding has no word
            reward = tf.math.divide_no_nan(reward, tf.reduce_sum(mask, axis=-1, keepdims=True))
        rollout = Rollout(
            log_prob=by_sample(outputs.log_prob, samples),
            entropy=by_sample(mask * attention_entropy(outputs.alignment_scores), samples),
            log_lik=by_sample(log_lik.soft, samples),
            reward=by_sample(reward, samples),
            mask=by_sample(mask, samples) * tf.cast(~expectation, tf.float32)[:, tf.newaxis],
        )
        returns = _caption_returns(action_returns(rollout.reward, estimator), word_mask(targets))
        average, mean_return = 0.0, None
        if averaged:
            mean_return = global_mean(returns)
            average = baseline(mean_return)
        signal = learning_signal(rollout, estimator, average)
        loss = stochastic_loss(rollout, signal, estimator)

        captions, words = tf.cast(size, tf.float32), tf.reduce_sum(word_mask(targets))
        means = word_means(outputs, log_lik.exact, mask, words)
        means |= attention_means(outputs, mask, words, captions)
        used = tf.convert_to_tensor(signal.baseline)
        used = used if used.shape.rank == 0 else weighted_mean(used, rollout.mask)
        means |= weighted({"reward": tf.reduce_mean(returns), "baseline": used}, captions)
        logs = rollout_logs(rollout, signal, by_sample(log_lik.exact, samples))
        means |= weighted(logs, tf.reduce_sum(tf.cast(~expectation, tf.float32)))
        if weight := self.attention.supervision_weight:
            maps = tf.repeat(maps, samples, axis=0)
            by_maps, logged = supervision(outputs.alignment_scores, maps)
            loss, means = loss + weight * by_maps, means | logged
        return Terms(loss, means, mean_return)


def _caption_returns(returns: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Mean return over samples and words, whether or not locations were drawn; `[B]`."""
    returns = tf.reduce_mean(returns, axis=0)
    if returns.shape[-1] == 1:
        return returns[:, 0]
    total = tf.reduce_sum(returns * mask, axis=-1)
    return tf.math.divide_no_nan(total, tf.reduce_sum(mask, axis=-1))
