"""The train step: the form of objectives, gradients over replicas and processes, running means."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import keras
import tensorflow as tf

from sat_tf.compat import BuildsBeforeFit
from sat_tf.ops import fold_in, global_size
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import NonNegative, check_argument

Batch = Mapping[str, tf.Tensor]
"""Tensors by name; each has one row per example."""
Means = dict[str, tuple[tf.Tensor, tf.Tensor]]
"""Name -> (mean, weight), float32 scalars; a mean may be NaN if its weight is 0."""
Logs = dict[str, tf.Tensor]


class Terms(NamedTuple):
    """The loss of one batch on one replica, and what to log of it."""

    loss: tf.Tensor
    """Scalar: the mean over this replica's examples. A step descends its gradient."""
    means: Means
    """Logged with the loss, as running means with these weights."""
    mean_return: tf.Tensor | None = None
    """Scalar over all replicas, from which a moving-average baseline learns; None without one."""


class Objective(Protocol):
    """The form of all objectives that `TrainableModel.train_step` minimises.

    One that XLA cannot compile sets `supports_jit` to False.
    """

    @property
    def log_names(self) -> Sequence[str]:
        """Keys of `Terms.means`, known before the first batch."""

    def __call__(self, model: Any, batch: Batch, seed: tf.Tensor) -> Terms:
        """Computes the loss of a batch.

        Args:
            model: The model in training.
            batch: The examples of this replica.
            seed: int32 `[2]`, the same on all replicas; `replica_seed` gives this replica's own.

        Returns:
            `Terms`.
        """


def weighted(values: Mapping[str, tf.Tensor], weight: tf.Tensor) -> Means:
    """Gives each of several means the same weight."""
    return {name: (value, weight) for name, value in values.items()}


def _of_dictionaries(method: Callable) -> Callable:
    """Refuses targets and weights, which Keras would drop next to a dictionary."""

    @functools.wraps(method)
    def checked(self, *args, **kwargs):
        given = inspect.signature(method).bind(self, *args, **kwargs).arguments
        for name in ("y", "sample_weight", "class_weight"):
            if given.get(name) is not None:
                expected = "none, as a batch holds all that the objective reads"
                raise invalid_value(name, expected, type(given[name]).__name__)
        return method(self, *args, **kwargs)

    return checked


class TrainableModel(BuildsBeforeFit, keras.Model):
    """A model trained by an objective: `objective(model, batch, seed) -> Terms`.

    A subclass builds all its layers in its constructor, sets `built`, and sets `objective` to
    the one it is trained by unless `compile` is given another. Batches are dictionaries of
    tensors with one row per example; further targets or weights are a `ValueError`. `evaluate`
    needs `test_means`.
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
        """Weights with a gradient that is clipped alone: those of a learned baseline."""
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
            ValueError: A loss or metrics are given, XLA is wanted for an objective without it,
                the optimizer scales losses, or `clip_norm` or `seed` is invalid.
        """
        given = inspect.signature(super().compile).bind(*args, **kwargs).arguments
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
        if isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
            expected = "one that scales no losses; bfloat16 needs none, unlike float16"
            raise invalid_value("optimizer", expected, "LossScaleOptimizer")
        self.objective = objective
        self.clip_norm, self.seed = clip_norm, seed
        names = ("gradient_norm", "loss", *self.objective.log_names)
        self._means = SimpleNamespace(value=RunningMeans(names))

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
            terms = self.objective(self, batch, self.step_seed())
            # Replicas' gradients are summed, so each counts by its share of the examples. The
            # mean over an empty batch is NaN, which `multiply_no_nan` turns into 0.
            loss = tf.math.multiply_no_nan(terms.loss, size / total)
        gradients = tape.gradient(loss, self.trainable_variables)
        pairs = zip(gradients, self.trainable_variables, strict=True)
        # No step without data: the count of steps would go up once more when an iterator ends.
        with tf.control_dependencies([loss]):
            norm = apply_gradients(self.optimizer, pairs, self.clip_norm, self.separately_clipped)
        if terms.mean_return is not None and hasattr(self.baseline, "update"):  # it has state
            self.baseline.update(terms.mean_return)
        means = self._means.value
        counted = {"gradient_norm": (norm, 1.0), "loss": (terms.loss, size)}
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

    fit = _of_dictionaries(keras.Model.fit)
    train_on_batch = _of_dictionaries(keras.Model.train_on_batch)

    def evaluate(self, *args, **kwargs) -> dict[str, float] | list[float] | float:
        """Returns the means of `test_means`; see `keras.Model.evaluate`."""
        self._evaluating = True
        try:
            return _of_dictionaries(keras.Model.evaluate)(self, *args, **kwargs)
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
        """Scores a replica's examples for `evaluate`, under names that training logs too.

        The seed, int32 `[2]`, is the same on all replicas.
        """
        raise NotImplementedError(f"{type(self).__name__} does not support `evaluate`.")

    def step_seed(self) -> tf.Tensor:
        """Derives a step's seed, int32 `[2]`, the same on all replicas, from (seed, step).

        So no random state has to be saved.
        """
        folded = tf.constant([self.seed, 0], tf.int32)
        if getattr(self, "optimizer", None) is None:  # Keras sets it when it compiles
            return folded
        return fold_in(folded, tf.cast(self.optimizer.iterations, tf.int32))

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
        """Builds the optimiser, which the constructor does not."""
        if self.optimizer is not None and not self.optimizer.built:
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)


class RunningMeans(keras.metrics.Metric):
    """Weighted means of several numbers, each `sum_n w_n x_n / sum_n w_n` since the last reset.

    Two vectors hold them all; a Keras metric for each would be a tenth of a train step's graph.
    """

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(name="running_means")
        self.names = tuple(names)
        size = [len(self.names)]
        self.sums = self.add_variable(size, "zeros", name="sums")
        self.weights = self.add_variable(size, "zeros", name="weights")

    def update_state(self, counted: Mapping[str, tuple[tf.Tensor, tf.Tensor]]) -> None:
        """Adds numbers to their means.

        Args:
            counted: Number and weight by name, scalars; a number of weight 0 may be NaN.

        Raises:
            KeyError: A name is unknown.
        """
        if unknown := counted.keys() - set(self.names):
            raise KeyError(f"Expected names among {self.names}, got {sorted(unknown)}.")
        pairs = [counted.get(name, (0.0, 0.0)) for name in self.names]
        numbers, weights = (
            tf.stack([tf.cast(part, tf.float32) for part in parts])
            for parts in zip(*pairs, strict=True)
        )
        self.sums.assign_add(tf.math.multiply_no_nan(numbers, weights))
        self.weights.assign_add(weights)

    def result(self) -> dict[str, tf.Tensor]:
        """Returns the means by name; 0 if nothing was added yet."""
        means = tf.math.divide_no_nan(tf.convert_to_tensor(self.sums), self.weights)
        return dict(zip(self.names, tf.unstack(means), strict=True))


def apply_gradients(
    optimizer: keras.optimizers.Optimizer,
    pairs: Iterable[tuple[tf.Tensor | None, keras.Variable]],
    clip_norm: float,
    separately_clipped: Collection[keras.Variable] = (),
) -> tf.Tensor:
    """Clips the gradient of the global batch and applies it.

    Args:
        optimizer: Built. If its `takes_summed_gradients` is true it is given the sum over the
            replicas; any other Keras optimiser sums over them itself.
        pairs: Gradients of this replica's share of the loss, with their variables.
        clip_norm: Largest global norm; 0 does not clip.
        separately_clipped: Variables clipped by a norm of their gradients alone. The error of a
            learned baseline, in squared nats, would otherwise take most of the norm.

    Returns:
        Norm of the gradient before clipping, without that of `separately_clipped`; float32 scalar.
    """
    pairs = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
    # The gradient of Keras' own embeddings is sparse (IndexedSlices): KerasHub's ViT has one.
    known = [tf.convert_to_tensor(gradient) for gradient, _ in pairs]
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync
    if replicas > 1:
        known = context.all_reduce(tf.distribute.ReduceOp.SUM, known)
    summed_again = replicas > 1 and not getattr(optimizer, "takes_summed_gradients", False)
    apart = {id(variable) for variable in separately_clipped}
    norms = []
    for separate in (False, True):
        group = [i for i, (_, variable) in enumerate(pairs) if (id(variable) in apart) is separate]
        clipped = [known[i] for i in group]
        norms.append(tf.linalg.global_norm(clipped) if group else tf.zeros([]))
        if clip_norm and group:
            clipped, _ = tf.clip_by_global_norm(clipped, clip_norm, use_norm=norms[-1])
        for i, gradient in zip(group, clipped, strict=True):
            known[i] = gradient / replicas if summed_again else gradient
    optimizer.apply_gradients(zip(known, [variable for _, variable in pairs], strict=True))
    return norms[0]


def spans_workers(strategy: tf.distribute.Strategy) -> bool:
    """Returns True if the devices of the strategy belong to several processes."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def worker_function(
    strategy: tf.distribute.Strategy, step: Callable[[dict], Logs]
) -> Callable[[Iterator], Logs]:
    """Compiles a train step for what `fit` calls over several processes.

    Keras' own function fails there (keras issue 20585).

    Keras would average the logs over the first axis, which scalars lack. They are running means,
    which Keras reads from all devices at the end of the epoch; until then this process' first
    device reports its own, so that no process waits for another.
    """

    @tf.function(reduce_retracing=True)
    def run(iterator: Iterator) -> Logs:
        logs = strategy.run(step, args=(next(iterator),))
        return {name: strategy.experimental_local_results(logs[name])[0] for name in logs}

    return run


def _inputs_alone(batch: Batch | tuple) -> Batch:
    """Returns the dictionary of a batch, which Keras may have turned into a tuple.

    Raises:
        ValueError: The batch also has targets or weights.
    """
    inputs, *others = keras.utils.unpack_x_y_sample_weight(batch)
    if any(other is not None for other in others):
        expected = "a dictionary alone, which holds all that the objective reads"
        raise invalid_value("batch", expected, "targets or sample weights beside it")
    return inputs
