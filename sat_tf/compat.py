"""Private names of Keras 3.15 and TensorFlow 2.21 that the project depends on, each in one place.

`tests/sat_tf/test_compat.py` names the one that a new version breaks. `default_policy`, next to
them, is of public names alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import keras


class BuildsBeforeFit:
    """Mixin for a `keras.Model`: `fit` calls `build_before_fit` in place of a symbolic build.

    Keras learns shapes from the first batch; under a strategy it averages those of the devices,
    which fails if they are uneven.
    """

    def build_before_fit(self) -> None:
        """Builds what the constructor did not."""
        raise NotImplementedError

    def _maybe_symbolic_build(self, iterator=None, data_batch=None) -> None:
        self.build_before_fit()


class GradientsAsGiven:
    """Mixin for a `keras.optimizers.Optimizer` that leaves the gradients of replicas as they are.

    Keras sums them over the replicas; gradients that are clipped are summed already.
    """

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return list(grads_and_vars)


def variable_key(optimizer: keras.optimizers.Optimizer, variable: keras.Variable) -> object:
    """Returns what identifies a variable: a replica's component has the key of the whole."""
    return optimizer._var_key(variable)


@contextmanager
def default_policy(policy: keras.DTypePolicy | str) -> Iterator[None]:
    """Sets the policy of layers that are made inside without one."""
    previous = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(previous)
