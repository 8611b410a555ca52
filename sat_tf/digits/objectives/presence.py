"""The likelihood of which labels are in a strip of digits, or hard attention's bound on it."""

from __future__ import annotations

import tensorflow as tf

from sat_tf.digits.config import PortionsConfig
from sat_tf.layers.attention import attention_entropy, entropy_share
from sat_tf.objectives.baselines import MovingAverageBaseline
from sat_tf.objectives.estimators import (
    Estimator,
    Rollout,
    by_sample,
    learning_signal,
    stochastic_loss,
    whole_return,
)
from sat_tf.objectives.terms import Batch, Terms, weighted
from sat_tf.ops.draws import replica_seed
from sat_tf.ops.replicas import global_mean


class PresenceObjective:
    """Cross-entropy of the presence of each label, nats per query.

    Hard attention maximises the ELBO, with the gradient of `estimators`: a query with M samples
    is an example, its T draws are the steps, and the last draw is rewarded.
    """

    def __init__(self, config: PortionsConfig) -> None:
        self.config = config
        self.hard = config.attention == "hard"

    @property
    def log_names(self) -> tuple[str, ...]:
        """Keys of `Terms.means`."""
        names = ("alpha_entropy",) if self.config.attends else ()
        return (*names, "reward") if self.hard else names

    def __call__(self, model, batch: Batch, seed: tf.Tensor, global_size: tf.Tensor) -> Terms:
        """Computes the loss of a batch of `images` and `labels`; see `Objective`."""
        del global_size
        samples, selection = (self.config.samples, "sample") if self.hard else (1, "expectation")
        answers = model(
            batch["images"],
            selection=selection,
            samples=samples,
            seed=replica_seed(seed),
            training=True,
        )
        present = tf.repeat(tf.reshape(model.presence(batch["labels"]), [-1]), samples)
        log_lik = -tf.nn.sigmoid_cross_entropy_with_logits(present, answers.logits)
        if not self.config.attends:
            return Terms(-tf.reduce_mean(log_lik), {})
        scores = answers.alignment_scores
        means = {"alpha_entropy": tf.reduce_mean(entropy_share(scores))}
        loss, mean_return = -tf.reduce_mean(log_lik), None
        if self.hard:
            means["reward"] = tf.reduce_mean(log_lik)
            rollout = self._rollout(log_lik, answers.log_prob, attention_entropy(scores))
            loss, mean_return = self._stochastic_loss(rollout, model.baseline)
        size = tf.cast(tf.shape(batch["labels"])[0], tf.float32)
        return Terms(loss, weighted(means, size), mean_return)

    def _rollout(self, log_lik: tf.Tensor, log_prob: tf.Tensor, entropy: tf.Tensor) -> Rollout:
        """Arranges rows `[B Q M, T]` as the samples of a rollout, `[M, B Q, T]`."""
        config = self.config
        log_prob = by_sample(log_prob, config.samples)
        rewarded = tf.pad(log_lik[:, tf.newaxis], [[0, 0], [config.draws - 1, 0]])
        log_lik = by_sample(rewarded, config.samples)
        return Rollout(
            log_prob=log_prob,
            entropy=tf.broadcast_to(entropy[tf.newaxis, :, tf.newaxis], tf.shape(log_prob)),
            log_lik=log_lik,
            reward=tf.stop_gradient(log_lik),
            mask=tf.ones_like(log_prob),
        )

    def _stochastic_loss(
        self, rollout: Rollout, baseline: MovingAverageBaseline | None
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Returns the loss, and the mean return if the baseline averages returns."""
        config = self.config
        estimator = Estimator(config.reward_weight, config.entropy_weight, baseline=config.baseline)
        average, mean_return = 0.0, None
        if baseline is not None:
            mean_return = global_mean(whole_return(rollout.reward))
            average = baseline(mean_return)
        signal = learning_signal(rollout, estimator, average)
        return stochastic_loss(rollout, signal, estimator), mean_return
