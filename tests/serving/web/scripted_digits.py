"""Digit models without TensorFlow, which look where a test wants and read a 7."""

from __future__ import annotations

from dataclasses import dataclass, field

import grpc
import numpy as np

from sat_tf.digits.config import DRAMConfig, RAMConfig, ReaderConfig, STNConfig
from serving.client.protocol import PredictResponse, to_array
from tests.serving.web.scripted_model import write_tensor

ANSWER = "7"
CENTRES = ((0.25, 0.25), (0.5, 0.5), (0.75, 0.5))  # of the glimpses, shares of the image
HALF = 0.15  # half of a patch's side, likewise
PAIR = "3 and 7"
TURNED = ((0.5, 0.1), (0.9, 0.5), (0.5, 0.9), (0.1, 0.5))  # what the transformer looks at

CONFIGS = {
    "ram": ReaderConfig("ram", "ram_28", "digit", 28, 20.0, 20.0, RAMConfig()),
    "dram": ReaderConfig("dram", "dram_pairs", "pair", 60, 20.0, 20.0, DRAMConfig()),
    "stn": ReaderConfig("stn", "stn_rts", "digit", 42, 14.0, 24.0, STNConfig()),
}


@dataclass
class ScriptedDigits:
    """Reads every image as a 7, ever more surely; a pair as 3 and 7.

    Attributes:
        config: What it is.
        images: What it was given so far.
    """

    config: ReaderConfig
    images: list[np.ndarray] = field(default_factory=list)

    def predict(self, request, context) -> PredictResponse:
        """Answers one request."""
        image = to_array(request.inputs["images"])
        side = self.config.image_size
        if image.shape != (1, side, side, 1):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"the shape is {image.shape}")
        self.images.append(image[0, ..., 0])
        response = PredictResponse()
        for name, value in self._outputs().items():
            write_tensor(response.outputs[name], value)
        return response

    def _outputs(self) -> dict:
        names, scales = list(self.config.answers), 1
        corners = [TURNED]
        if self.config.system != "stn":
            signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
            corners = [[(x + HALF * i, y + HALF * j) for i, j in signs] for x, y in CENTRES]
            scales = 3 if self.config.system == "dram" else 1
        looks, best = len(corners), names.index(ANSWER if self.config.digits == 1 else PAIR)
        sure = np.linspace(0.4, 0.9, looks) if looks > 1 else np.array([0.9])
        probabilities = np.tile((1 - sure[:, None]) / (len(names) - 1), len(names))
        probabilities[:, best] = sure
        patches = np.full([1, looks, 8, 8, scales], 0.5, np.float32)
        return {
            "answers": names,
            "corners": np.array([corners], np.float32),
            "patches": patches,
            "probabilities": probabilities[None].astype(np.float32),
        }
