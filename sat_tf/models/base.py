"""The train step that captioners and digit systems share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import keras
import tensorflow as tf

from sat_tf.compat import BuildsBeforeFit, steps_taken
from sat_tf.errors import invalid_value
from sat_tf.fields import NonNegative, check_argument
from sat_tf.models.distributed_step import (
    RunningMeans,
    apply_gradients,
    scales_losses,
    spans_workers,
    worker_function,
)
from sat_tf.objectives.baselines import MovingAverageBaseline
from sat_tf.objectives.replica_context import global_size
from sat_tf.objectives.terms import Batch, Means, Objective

Results = dict[str, float] | list[float] | float


class TrainableModel(BuildsBeforeFit, keras.Model):
    """A model trained by an objective: `objective(model, batch, seed, global_size) -> Terms`.

    A subclass builds all its layers in its constructor, sets `built`, and sets `objective` to
    the one it is trained by unless `compile` is given another. Batches are dictionaries of
    tensors with one row per example. `evaluate` needs `test_means`.

    Args:
        **kwargs: For Keras.
    """

    objective: Objective
    """Minimised by a train step."""

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self.baseline: keras.layers.Layer | None = None
        self.seed = 0
        # The namespace keeps Keras from saving the running means among the weights.
        self._means: SimpleNamespace | None = None
        self._test_names: tuple[str, ...] = ()
        self._evaluating = False

    @property
    def separately_clipped(self) -> list[keras.Variable]:
        """Weights whose gradient is clipped by its own norm: those of a learned baseline."""
        return [] if self.baseline is None else self.baseline.trainable_variables

    def compile(
        self,
        *args,
        objective: Objective | None = None,
        clip_norm: float = 0.0,
        seed: int = 0,
        **kwargs,
    ) -> None:
        """Configures training; see `keras.Model.compile`.

        Args:
            *args: For Keras: the optimizer.
            objective: Minimised by a train step; None keeps the model's own. It is not saved with
                the model.
            clip_norm: Largest global norm of the gradient; 0 does not clip.
            seed: Seed of every random draw in training.
            **kwargs: For Keras, but no loss and no metrics, which the objective has.

        Raises:
            ValueError: A loss or metrics are given, XLA is wanted for an objective without it, or
                `clip_norm` or `seed` is invalid.
        """
        given = _given(super().compile, args, kwargs)
        for name in ("loss", "loss_weights", "metrics", "weighted_metrics"):
            if given.get(name) is not None:
                raise invalid_value(name, "none, as the objective has its own", repr(given[name]))
        check_argument("clip_norm", clip_norm, NonNegative)
        check_argument("seed", seed, int)
        objective = self.objective if objective is None else objective
        if not getattr(objective, "supports_jit", True):
            if given.get("jit_compile") is True:
                expected = "False with this objective, which XLA cannot compile"
                raise invalid_value("jit_compile", expected, True)
            given["jit_compile"] = False
        super().compile(**given)
        self.objective = objective
        self.clip_norm, self.seed = clip_norm, seed
        names = ("gradient_norm", "loss", *self.objective.log_names)
        self._means = SimpleNamespace(value=RunningMeans(names))

    def get_compile_config(self) -> dict | None:
        """Returns what `compile_from_config` needs, for a saved model; None if not compiled."""
        if not self.compiled:
            return None
        config = super().get_compile_config() or {}
        names = ("optimizer", "jit_compile", "run_eagerly", "steps_per_execution")
        kept = {name: config[name] for name in (*names, "auto_scale_loss") if name in config}
        return {**kept, "clip_norm": self.clip_norm, "seed": self.seed}

    def compile_from_config(self, config: dict) -> None:
        """Compiles a model that was saved; it minimises its own objective."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.build_before_fit()

    def train_step(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Takes one step of gradient descent; Keras compiles it and runs it on every replica.

        Args:
            batch: The examples of this replica; there may be none.

        Returns:
            Running means since the start of the epoch, by name.
        """
        batch = _inputs_alone(batch)
        size = tf.cast(tf.shape(tf.nest.flatten(batch)[0])[0], tf.float32)
        total = global_size(size)
        with tf.GradientTape() as tape:
            terms = self.objective(self, batch, self.step_seed(), total)
            # Replicas' gradients are summed, so each counts by its share of the examples. The
            # mean over an empty batch is NaN, which `multiply_no_nan` turns into 0.
            loss = tf.math.multiply_no_nan(terms.loss, size / total)
            scaled_loss = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled_loss, self.trainable_variables)
        pairs = zip(gradients, self.trainable_variables, strict=True)
        norm = apply_gradients(self.optimizer, pairs, self.clip_norm, self.separately_clipped)
        scaled = scales_losses(self.optimizer)
        if isinstance(self.baseline, MovingAverageBaseline) and terms.mean_return is not None:
            self.baseline.update(terms.mean_return)
        means = self._means.value
        # A float16 loss that was scaled too much makes no step, and has no norm.
        weight = tf.cast(tf.math.is_finite(norm), tf.float32) if scaled else 1.0
        counted = {"gradient_norm": (norm, weight), "loss": (terms.loss, size)}
        means.update_state(counted | terms.means)
        return means.result()

    def test_step(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Adds a batch to the running means of `test_means`."""
        counted = self.test_means(_inputs_alone(batch), self.step_seed())
        means = self._means.value
        means.update_state(counted)
        results = means.result()
        self._test_names = tuple(counted)
        return {name: results[name] for name in counted}

    def fit(self, *args, **kwargs) -> keras.callbacks.History:
        """Trains on batches that are dictionaries; see `keras.Model.fit`.

        Raises:
            ValueError: Targets or weights are given beside them.
        """
        _check_inputs_alone(super().fit, args, kwargs)
        return super().fit(*args, **kwargs)

    def train_on_batch(self, *args, **kwargs) -> Results:
        """Takes one step; see `keras.Model.train_on_batch`, and `fit`."""
        _check_inputs_alone(super().train_on_batch, args, kwargs)
        return super().train_on_batch(*args, **kwargs)

    def test_on_batch(self, *args, **kwargs) -> Results:
        """Returns the means of `test_means`; see `keras.Model.test_on_batch`, and `fit`."""
        _check_inputs_alone(super().test_on_batch, args, kwargs)
        return super().test_on_batch(*args, **kwargs)

    def evaluate(self, *args, **kwargs) -> Results:
        """Returns the means of `test_means`; see `keras.Model.evaluate`, and `fit`."""
        _check_inputs_alone(super().evaluate, args, kwargs)
        self._evaluating = True
        try:
            return super().evaluate(*args, **kwargs)
        finally:
            self._evaluating = False

    def get_metrics_result(self) -> dict[str, tf.Tensor]:
        """Returns the running means over all devices, in `evaluate` those of `test_means` alone.

        Keras reads its results here if they have the names of the logs. Otherwise it averages the
        devices' own means, however many examples each had.
        """
        results = super().get_metrics_result()
        if not self._evaluating:
            return results
        return {name: results[name] for name in self._test_names}

    def test_means(self, batch: Batch, seed: tf.Tensor) -> Means:
        """Scores a batch for `evaluate`, under names that training logs too.

        Args:
            batch: The examples of this replica.
            seed: int32 `[2]`, the same on all replicas.
        """
        raise NotImplementedError(f"{type(self).__name__} does not support `evaluate`.")

    def step_seed(self) -> tf.Tensor:
        """Derives a step's seed from (seed, step), so that no random state has to be saved.

        Returns:
            int32 `[2]`, the same on all replicas.
        """
        folded = tf.constant([self.seed, 0], tf.int32)
        if getattr(self, "optimizer", None) is None:  # Keras sets it when it compiles
            return folded
        step = tf.cast(steps_taken(self.optimizer), tf.int32)
        return tf.random.experimental.stateless_fold_in(folded, step)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """Running means of the epoch, which Keras resets at its start."""
        return [] if self._means is None else [self._means.value]

    def make_train_function(self, force: bool = False) -> None:
        """Compiles the train step; see `worker_function` for several processes."""
        if not spans_workers(self.distribute_strategy):
            super().make_train_function(force)
        elif self.train_function is None or force:
            self.train_function = worker_function(self.distribute_strategy, self.train_step)

    def make_test_function(self, force: bool = False) -> None:
        """Compiles the test step; see `worker_function` for several processes."""
        if not spans_workers(self.distribute_strategy):
            super().make_test_function(force)
        elif self.test_function is None or force:
            self.test_function = worker_function(self.distribute_strategy, self.test_step)

    def build_before_fit(self) -> None:
        """Builds the optimiser, all that is not built in the constructor."""
        if self.optimizer is not None and not self.optimizer.built:
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)


def _given(method: Callable, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a call by the names of the method's parameters."""
    return inspect.signature(method).bind(*args, **kwargs).arguments


def _check_inputs_alone(method: Callable, args: tuple, kwargs: dict[str, Any]) -> None:
    given = _given(method, args, kwargs)
    for name in ("y", "sample_weight", "class_weight"):
        if given.get(name) is not None:
            expected = "none, as a batch holds all that the objective reads"
            raise invalid_value(name, expected, type(given[name]).__name__)


def _inputs_alone(batch: Batch | tuple) -> Batch:
    """Returns the dictionary of a batch, of which Keras may have made a tuple.

    Raises:
        ValueError: There are targets or weights beside it.
    """
    inputs, *others = keras.utils.unpack_x_y_sample_weight(batch)
    if any(other is not None for other in others):
        expected = "a dictionary alone, which holds all that the objective reads"
        raise invalid_value("batch", expected, "targets or sample weights beside it")
    return inputs
