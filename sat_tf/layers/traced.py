"""Symbolic calls of layers whose outputs do not follow the dtype policy."""

from __future__ import annotations

from typing import Any

import keras


class TracedOutputs:
    """Mixin for a `keras.layers.Layer` that has `compute_output_shape`.

    Keras would give symbolic outputs of these shapes the policy's dtype. Tracing the call finds
    their own, and checks the inputs.
    """

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        return keras.Operation.compute_output_spec(self, *args, **kwargs)
