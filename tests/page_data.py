"""Reads the data of the viewer's pages, as the viewer does."""

import base64
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np


def embedded(page: str) -> dict[str, Any]:
    """The data that a page of one file carries."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(found)


def decode_map(word: dict[str, Any], peak: float, grid: Sequence[int]) -> np.ndarray:
    """The map of a word; the largest value in the caption is `peak`."""
    return np.frombuffer(base64.b64decode(word["map"]), np.uint8).reshape(grid) / 255 * peak
