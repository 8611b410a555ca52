"""Operations that TensorFlow lacks or has slower: draws, gradients, sums over replicas.

Draws come from stateless seeds: Keras' seed generators draw the same values on every replica and
are state that a resumed run has to restore. A draw made from (seed, step, replica) has neither
fault.

Code that is tuned for speed equals a plain form, which stands next to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from sat_tf.util.errors import invalid_value

# --- draws ---

_TOLERANCE = 0.01  # of a dropout rate


def check_seed(seed: object) -> None:
    """Checks that a seed is int32 `[2]`; raises `ValueError` otherwise."""
    shape = tf.TensorShape(np.shape(seed))
    if not shape.is_compatible_with([2]):
        raise invalid_value("seed", "two integers, int32 [2]", f"shape {tuple(shape)}")


def step_seeds(seed: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
    """Draws one stateless seed per step, `[T, 2]`, from one seed `[2]`.

    The seeds of the first steps are the same however many follow.
    """
    return _integers([steps, 2], seed, tf.int32)


def replica_seed(seed: tf.Tensor, replica: tf.Tensor | int | None = None) -> tf.Tensor:
    """Folds the replica's number into a seed that all replicas share.

    Args:
        seed: int32 `[2]`.
        replica: The replica; None for the one this runs on. A fixed number gives all replicas
            the same draws.

    Returns:
        int32 `[2]`.
    """
    if replica is None:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    return fold_in(seed, replica)


def fold_in(seed: tf.Tensor, number: tf.Tensor | int) -> tf.Tensor:
    """Derives a seed, int32 `[2]`, from a seed and a number."""
    return tf.stack([_integers([], seed, tf.int32), tf.cast(number, tf.int32)])


def uniform(shape: tf.Tensor | list, seed: tf.Tensor) -> tf.Tensor:
    """Draws float32 from [0, 1), the same with XLA as without.

    TensorFlow's own draws are not: they take the low bits of random integers, XLA's the high ones.
    """
    numbers = _integers(shape, seed, tf.uint32)
    mantissa = tf.bitwise.bitwise_and(numbers, tf.constant(0x7FFFFF, tf.uint32))
    one = tf.constant(0x3F800000, tf.uint32)  # the bits of 1.0
    return tf.bitcast(tf.bitwise.bitwise_or(mantissa, one), tf.float32) - 1.0


class DefaultSeeds:
    """A layer's own source of stateless seeds: a `keras.random.SeedGenerator` made at first use.

    A model that hands in its seeds, to resume exactly, never makes it: no variable joins its
    checkpoints, and no random number is taken from the initialisers. For the same reason Keras does
    not track it: a weights file says nothing of it. `keras.Model.export` takes it along;
    `tf.saved_model.save` refuses a model that has it.
    """

    def __init__(self) -> None:
        self._generator: keras.random.SeedGenerator | None = None

    def draw(self) -> tf.Tensor:
        """Draws an int32 `[2]` that differs between calls and between replicas of a strategy."""
        if self._generator is None:
            with tf.init_scope():
                self._generator = keras.random.SeedGenerator()
        seed = tf.cast(self._generator.next(), tf.int32)
        context = tf.distribute.get_replica_context()
        if context is None or context.num_replicas_in_sync == 1:
            return seed
        return replica_seed(seed)  # replicas may read the same state


def dropout(
    inputs: tf.Tensor,
    rate: float,
    seed: tf.Tensor | None,
    salt: int,
    shared_axis: int | None = None,
) -> tf.Tensor:
    """Zeroes a share `rate` of `inputs` and scales the rest by `1 / (1 - rate)`.

    Uses 8-bit draws if n / 256 is within 1 % of the rate (77 / 256 for 0.3), else 16-bit draws;
    the scale is that of the share really dropped. TensorFlow's own would change the draws of every
    seeded run.

    Args:
        inputs: Any shape, floating.
        rate: Share dropped, in [0, 1).
        seed: int32 `[2]`; None, at inference, returns the inputs.
        salt: Tells apart the masks made from the same seed.
        shared_axis: Axis along which all have one mask; None for no axis.

    Returns:
        A tensor like `inputs`.
    """
    if seed is None or rate == 0.0:
        return inputs
    seed = fold_in(seed, salt)
    shape = tf.shape(inputs)
    if shared_axis is not None:
        sizes = tf.unstack(shape)
        sizes[shared_axis] = 1
        shape = tf.stack(sizes)
    bits = tf.uint8 if abs(round(rate * 2**8) / 2**8 - rate) <= _TOLERANCE * rate else tf.uint16
    draws = bits.max + 1
    dropped = min(round(rate * draws), draws - 1)
    # Several draws from each number: drawing is what dropout costs.
    size, per_number = tf.reduce_prod(shape), tf.uint32.size // bits.size
    numbers = _integers([(size + per_number - 1) // per_number], seed, tf.uint32)
    drawn = tf.reshape(tf.reshape(tf.bitcast(numbers, bits), [-1])[:size], shape)
    scale = tf.cast(draws / (draws - dropped), inputs.dtype)
    kept = drawn >= tf.constant(dropped, bits)
    return tf.where(kept, inputs * scale, tf.zeros([], inputs.dtype))


def _integers(shape: tf.Tensor | list, seed: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Draws uniformly from all integers of a type, the same on every device, with XLA or without.

    XLA reads other bits from a negative seed unless it has 64.
    """
    seed = tf.cast(seed, tf.int64)
    return tf.random.stateless_uniform(shape, seed, None, None, dtype, alg="philox")


# --- gradients written by hand: of likelihoods of words, and of kernels in a loop over time ---

Labels = tuple[tf.Tensor, tf.Tensor]
"""Integer words `[R, J]` and their shares `[R, J]` of each row's target; what the shares leave of 1
is spread over all words."""


def plain_log_likelihoods(
    logits: tf.Tensor, targets: tf.Tensor, labels: Labels | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The plain form of `fast_log_likelihoods`, with TensorFlow's own gradient."""
    log_probs = tf.nn.log_softmax(logits)
    exact = tf.gather(log_probs, targets, batch_dims=1)
    if labels is None:
        return exact, exact
    words, shares = labels
    spread = (1.0 - tf.reduce_sum(shares, axis=-1)) * tf.reduce_mean(log_probs, axis=-1)
    return exact, tf.reduce_sum(shares * tf.gather(log_probs, words, batch_dims=1), -1) + spread


def fast_log_likelihoods(
    logits: tf.Tensor, targets: tf.Tensor, labels: Labels | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """`log p(y)`, and `sum_j q_j log p(w_j) + r mean_k log p(k)`, with p the softmax of the logits.

    The logits of all words are the largest tensor of a training step. Their gradient
    `g_k = e [k = y] + d sum_j q_j [k = w_j] + d r / K - (e + d) p_k` takes three passes over them
    here and ten by TensorFlow's rules; e and d are the gradients of the two results, and
    `r = 1 - sum_j q_j`. Value and gradient of 896 words with K = 10,000 on two cores: 17 for 49 ms,
    20 for 50 ms with one word per label.

    Args:
        logits: Floating `[R, K]`.
        targets: Integer `[R]`, y.
        labels: w and q of each row; None for a second result that equals the first.

    Returns:
        `[R]` each, nats; differentiable once.
    """

    @tf.custom_gradient
    def of_rows(logits: tf.Tensor):
        shifted = logits - tf.reduce_max(logits, axis=-1, keepdims=True)
        powers = tf.exp(shifted)
        total = tf.reduce_sum(powers, axis=-1)
        norm = tf.math.log(total)
        exact = tf.gather(shifted, targets, batch_dims=1) - norm
        soft = exact
        if labels is not None:
            rest = 1.0 - tf.reduce_sum(labels[1], axis=-1)
            spread = rest * tf.reduce_mean(shifted, axis=-1)
            at_words = tf.gather(shifted, labels[0], batch_dims=1)
            soft = tf.reduce_sum(labels[1] * at_words, axis=-1) + spread - norm

        def gradient(of_exact: tf.Tensor, of_soft: tf.Tensor):
            gradients = powers * (-(of_exact + of_soft) / total)[:, None]
            if labels is None:
                return _scattered(gradients, targets[:, None], (of_exact + of_soft)[:, None])
            words, shares = labels
            count = tf.cast(tf.shape(logits)[-1], logits.dtype)
            gradients += (rest * of_soft / count)[:, None]
            words = tf.concat([tf.cast(targets, words.dtype)[:, None], words], axis=1)
            values = tf.concat([of_exact[:, None], shares * of_soft[:, None]], axis=1)
            return _scattered(gradients, words, values)

        return (exact, soft), gradient

    return of_rows(logits)


def _scattered(rows: tf.Tensor, words: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Adds `values` `[R, J]` to `rows` `[R, K]` at `words` `[R, J]`, equal ones together."""
    words = tf.cast(words, tf.int32)
    numbers = tf.broadcast_to(tf.range(tf.shape(words)[0])[:, None], tf.shape(words))
    return tf.tensor_scatter_nd_add(rows, tf.stack([numbers, words], axis=-1), values)


class DeferredKernels:
    """Kernels of products that a loop over time adds to one sum.

    With `sum[t] = term[t] + sum_k x_k[t] kernel_k`, the gradient of a kernel is
    `sum_t x_k[t]^T g[t]`, g the gradient of `sum`, and so of `term`. Inside the loop it costs a
    thin product and the addition of a whole kernel per step; here it is one product over all steps.

    Multiply with `inside` in the loop, start from `tap(term)`, and `record` the `x_k` after it.

    Args:
        kernels: `[X_k, G]` each.
    """

    def __init__(self, kernels: Sequence[tf.Tensor]) -> None:
        self._kernels = tuple(kernels)
        self._factors: list[tf.Tensor] = []
        self.inside = tuple(tf.stop_gradient(kernel) for kernel in self._kernels)
        """The kernels for use in the loop: no gradient flows to them."""

    def tap(self, term: tf.Tensor) -> tf.Tensor:
        """Passes on `term` `[T, B, G]`; its gradient also gives those of the kernels."""

        @tf.custom_gradient
        def identity(term: tf.Tensor, *_: tf.Tensor):
            def gradient(upstream: tf.Tensor):
                rows = _rows(upstream)
                products = [tf.matmul(_rows(x), rows, transpose_a=True) for x in self._factors]
                return upstream, *products

            return tf.identity(term), gradient

        return identity(term, *self._kernels)

    def record(self, *factors: tf.Tensor) -> None:
        """Keeps the factors `x_k` `[T, B, X_k]` of the kernels, in the kernels' order."""
        self._factors = [tf.stop_gradient(factor) for factor in factors]


def _rows(sequence: tf.Tensor) -> tf.Tensor:
    """`[T, B, X] -> [T B, X]`."""
    return tf.reshape(sequence, [-1, sequence.shape[-1]])


# --- sizes and means over replicas, and batches without rows ---


def global_size(size: tf.Tensor) -> tf.Tensor:
    """Sums the replicas' batch sizes, which may be uneven; float32 scalar."""
    context = tf.distribute.get_replica_context()
    size = tf.cast(size, tf.float32)
    if context.num_replicas_in_sync == 1:
        return size
    return context.all_reduce(tf.distribute.ReduceOp.SUM, size)


def global_mean(values: tf.Tensor) -> tf.Tensor:
    """Means `values` over the examples of all replicas; a scalar."""
    context = tf.distribute.get_replica_context()
    total, size = tf.reduce_sum(values), tf.cast(tf.size(values), tf.float32)
    if context.num_replicas_in_sync > 1:
        total, size = context.all_reduce(tf.distribute.ReduceOp.SUM, [total, size])
    return total / size


def at_least_one_row(function: Callable[[tf.Tensor], tf.Tensor], batch: tf.Tensor) -> tf.Tensor:
    """Calls a function with at least one row: an empty batch gets one of zeros, later dropped.

    oneDNN's convolutions, for example, give an empty batch a wrong shape.

    Args:
        function: Rows to as many rows.
        batch: Floating `[B, ...]`. Only with several replicas may an unknown B be 0.

    Returns:
        What the function returns for the batch, `[B, ...]`.
    """
    rows = batch.shape[0]
    if rows or (rows is None and tf.distribute.get_strategy().num_replicas_in_sync == 1):
        return function(batch)
    count = tf.shape(batch)[0]
    added = tf.cast(tf.equal(count, 0), tf.int32)
    padded = tf.pad(batch, [[0, added], *[[0, 0]] * (len(batch.shape) - 1)])
    return function(padded)[:count]
