"""A train step over replicas and processes: gradients, running means, compiled loop."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import keras
import tensorflow as tf


class RunningMeans(keras.metrics.Metric):
    """Weighted means of several numbers, each `sum_n w_n x_n / sum_n w_n` since the last reset.

    Two vectors hold them all; a Keras metric for each would be a tenth of a train step's graph.

    Args:
        names: Names of the numbers.
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
        separately_clipped: Variables clipped by the norm of their own gradients. The error of a
            learned baseline, in squared nats, would otherwise take most of the norm.

    Returns:
        Norm of the gradient before clipping, without that of `separately_clipped` and without the
        optimiser's loss scale; float32 scalar, not finite if the scale was too large.
    """
    pairs = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
    # The gradient of an embedding is sparse (IndexedSlices).
    known = [tf.convert_to_tensor(gradient) for gradient, _ in pairs]
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync
    if replicas > 1:
        known = context.all_reduce(tf.distribute.ReduceOp.SUM, known)
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    summed_again = replicas > 1 and not getattr(inner, "takes_summed_gradients", False)
    # Norms are those of the loss itself; the optimiser divides by its scale once more.
    scaled = scales_losses(optimizer)
    if scaled:
        scale = optimizer.scale_loss(tf.ones([]))
        known = [gradient / scale for gradient in known]
    apart = {id(variable) for variable in separately_clipped}
    norms = []
    for separate in (False, True):
        group = [i for i, (_, variable) in enumerate(pairs) if (id(variable) in apart) is separate]
        clipped, norm = _clip([known[i] for i in group], clip_norm)
        for i, gradient in zip(group, clipped, strict=True):
            known[i] = gradient / replicas if summed_again else gradient
        norms.append(norm)
    if scaled:
        known = [gradient * scale for gradient in known]
    optimizer.apply_gradients(zip(known, [variable for _, variable in pairs], strict=True))
    return norms[0]


def scales_losses(optimizer: keras.optimizers.Optimizer) -> bool:
    """Says whether an optimiser scales losses, as float16 needs it."""
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    return scales or optimizer.loss_scale_factor is not None


def _clip(gradients: list[tf.Tensor], clip_norm: float) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Clips gradients by their global norm, and returns the norm they had."""
    if not gradients:
        return [], tf.zeros([])
    if clip_norm:
        return tf.clip_by_global_norm(gradients, clip_norm)
    return gradients, tf.linalg.global_norm(gradients)


Logs = dict[str, tf.Tensor]


def spans_workers(strategy: tf.distribute.Strategy) -> bool:
    """Returns True if the devices of the strategy belong to several processes."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def worker_function(
    strategy: tf.distribute.Strategy, step: Callable[[dict], Logs]
) -> Callable[[Iterator], Logs]:
    """Compiles what `fit` and `evaluate` call per step if there are several processes.

    Keras' own function fails there (keras issue 20585).

    Keras would average the logs over the first axis, which scalars lack. They are running means,
    which Keras reads from all devices at the end of the epoch; until then this process' first
    device reports its own, so that no process waits for another.

    Args:
        strategy: Over several processes.
        step: `train_step` or `test_step`, for one device.
    """

    @tf.function(reduce_retracing=True)
    def run(iterator: Iterator) -> Logs:
        logs = strategy.run(step, args=(next(iterator),))
        return {name: strategy.experimental_local_results(logs[name])[0] for name in logs}

    return run
