"""Keras' global dtype policy, changed for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import keras


@contextmanager
def default_policy(policy: keras.DTypePolicy | str) -> Iterator[None]:
    """Sets the policy of layers that are made inside without one."""
    previous = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(previous)
