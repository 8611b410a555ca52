"""Digit models that look where a test wants and read a 7."""

from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from digits.config import answer_names
from digits.page import reading_data
from digits.reader import DigitReading, Facts, decode_drawing, fit_drawing
from tests.image_files import encode

ANSWER = "7"
CENTRES = ((0.25, 0.25), (0.5, 0.5), (0.75, 0.5))  # of the glimpses, shares of the image
HALF = 0.15  # half of a patch's side, likewise
PAIR = "3 and 7"
TURNED = ((0.5, 0.1), (0.9, 0.5), (0.5, 0.9), (0.1, 0.5))  # what the transformer looks at

CONFIGS = {
    "ram": Facts("ram", "ram_28", list(answer_names("digit")), 1, 28, 20.0, 20.0, 3, 8),
    "dram": Facts("dram", "dram_pairs", list(answer_names("pair")), 2, 60, 20.0, 20.0, 3, 8),
    "stn": Facts("stn", "stn_rts", list(answer_names("digit")), 1, 42, 14.0, 24.0, 1, 8),
}


@dataclass
class ScriptedDigits:
    """Reads every image as a 7, ever more surely; a pair as 3 and 7.

    Attributes:
        facts: What it is.
        images: What it was given so far.
    """

    facts: Facts
    images: list[np.ndarray] = field(default_factory=list)

    def read(self, content: bytes) -> DigitReading:
        """Reads a drawing."""
        facts = self.facts
        ink = (facts.ink_from, facts.ink_to)
        image, frame = fit_drawing(decode_drawing(content), facts.size, ink, facts.digits)
        self.images.append(image)
        names, scales = list(self.facts.answers), 1
        corners = [TURNED]
        if self.facts.system != "stn":
            signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
            corners = [[(x + HALF * i, y + HALF * j) for i, j in signs] for x, y in CENTRES]
            scales = 3 if self.facts.system == "dram" else 1
        looks, best = len(corners), names.index(ANSWER if self.facts.digits == 1 else PAIR)
        sure = np.linspace(0.4, 0.9, looks) if looks > 1 else np.array([0.9])
        probabilities = np.tile((1 - sure[:, None]) / (len(names) - 1), len(names))
        probabilities[:, best] = sure
        patches = np.full([looks, 8, 8, scales], 0.5, np.float32)
        return DigitReading(names[best], probabilities, np.array(corners), patches, image, frame)


class Shown:
    """A scripted model as the page has it: what it asks for first, and answers to drawings."""

    def __init__(self, name: str, model: ScriptedDigits) -> None:
        known = model.facts
        self.facts = {"name": name, "system": known.system, "digits": known.digits}
        self._model = model

    def __call__(self, content: bytes) -> dict:
        """Answers as a model of the page does."""
        return reading_data(self._model, content)


def view_of(models: dict[str, ScriptedDigits]) -> dict[str, Shown]:
    """The models of the page's view."""
    return {name: Shown(name, model) for name, model in models.items()}


def drawing(ink: bool = True, side: int = 280) -> bytes:
    """A bar, white on black."""
    image = Image.new("L", (side, side), 0)
    if ink:
        image.paste(255, (side // 2, side // 4, side // 2 + side // 10, 3 * side // 4))
    return encode(image, "PNG")
