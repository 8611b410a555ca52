"""Readings of digits by a server; imports no TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from serving.client import protocol
from serving.client.channel import ModelClient


@dataclass(frozen=True, eq=False)
class ServedReading:
    """The reading of one image, look by look: T looks, K classes.

    Attributes:
        answers: Names of the classes.
        probabilities: `[T, K]`, after each look.
        corners: `[T, 4, 2]`, of the finest patch, (x, y) as shares of the image's sides.
        patches: `[T, h, w, scales]`, the finest first.
    """

    answers: tuple[str, ...]
    probabilities: np.ndarray
    corners: np.ndarray
    patches: np.ndarray


class DigitClient(ModelClient):
    """Readings of a served digit model; see `ModelClient`."""

    def read(self, image: np.ndarray) -> ServedReading:
        """Reads one image, float32 `[S, S]`, white on black in [0, 1].

        Raises:
            ServingError: The server gave no answer, or an error for one.
        """
        request = protocol.PredictRequest()
        request.model_spec.name = self.model
        protocol.write_floats(request.inputs["images"], image[np.newaxis, ..., np.newaxis])
        outputs = self.predict(request).outputs
        values = {name: protocol.to_array(tensor)[0] for name, tensor in outputs.items()}
        answers = tuple(name.decode("utf-8") for name in values.pop("answers"))
        return ServedReading(answers, **values)
