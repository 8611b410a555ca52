"""Digit models that look where a test wants and read a 7."""

from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from digits.models.config import DRAMConfig, RAMConfig, ReaderConfig, STNConfig
from digits.page import reading_data
from digits.reader import DigitReading, decode_drawing, fit_drawing
from tests.image_files import encode

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

    def __call__(self, content: bytes) -> dict:
        """Answers as a model of the page does."""
        return reading_data(self, content)

    def read(self, content: bytes) -> DigitReading:
        """Reads a drawing."""
        config = self.config
        ink = (config.ink_from, config.ink_to)
        image, frame = fit_drawing(decode_drawing(content), config.image_size, ink, config.digits)
        self.images.append(image)
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
        patches = np.full([looks, 8, 8, scales], 0.5, np.float32)
        return DigitReading(names[best], probabilities, np.array(corners), patches, image, frame)


def view_of(models: dict[str, ScriptedDigits]) -> dict[str, ScriptedDigits]:
    """The models of the page's view, with what it asks for first."""
    for name, model in models.items():
        known = model.config
        model.facts = {"name": name, "system": known.system, "digits": known.digits}
    return models


def drawing(ink: bool = True, side: int = 280) -> bytes:
    """A bar, white on black."""
    image = Image.new("L", (side, side), 0)
    if ink:
        image.paste(255, (side // 2, side // 4, side // 2 + side // 10, 3 * side // 4))
    return encode(image, "PNG")
