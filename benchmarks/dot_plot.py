"""Dot plots side by side, drawn with Pillow: one panel per figure, one line per row."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from benchmarks.image_corpus import encode
from sat_tf.files import write_atomically

_COLUMNS = 3
_LINE, _TEXT, _GAP = 34, 15, 24  # pixels
_NAMES, _WIDTH = 110, 420  # width of the names, and of a panel with them
_HEAD, _FOOT = 58, 34
_PAPER, _INK, _GREY, _FAINT = (255, 255, 255), (34, 34, 34), (118, 118, 118), (232, 232, 232)
_DOT, _MEAN = (170, 200, 230), (31, 98, 168)
_TICKS = 4
_Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Spread:
    """One figure of several runs."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean of the values."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """Standard deviation, unbiased variance; None for one value."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def __format__(self, form: str) -> str:
        if self.deviation is None:
            return format(self.mean, form)
        return f"{self.mean:{form}} ± {self.deviation:{form}}"


@dataclass(frozen=True)
class Panel:
    """One figure, for all rows."""

    key: str
    title: str
    unit: str


def save_plot(path: Path, panels: Sequence[Panel], rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes a PNG: each row's values as pale dots, their mean as a dark one and in numbers."""
    write_atomically(path, encode(Image.fromarray(draw_plot(panels, rows)), "PNG"))


def draw_plot(panels: Sequence[Panel], rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Draws the image of `save_plot`: uint8 `[H, W, 3]`."""
    columns = min(_COLUMNS, len(panels))
    height = _HEAD + _LINE * len(rows) + _FOOT
    lines = math.ceil(len(panels) / columns)
    size = columns * (_WIDTH + _GAP) + _GAP, lines * (height + _GAP) + _GAP
    sheet = Image.new("RGB", size, _PAPER)
    draw = ImageDraw.Draw(sheet)
    for number, panel in enumerate(panels):
        left = _GAP + number % columns * (_WIDTH + _GAP)
        top = _GAP + number // columns * (height + _GAP)
        _draw_panel(draw, panel, rows, (left, top, left + _WIDTH, top + height))
    return np.array(sheet)


def _draw_panel(
    draw: ImageDraw.ImageDraw, panel: Panel, rows: Sequence[Mapping[str, Any]], box: _Box
) -> None:
    left, top, right, bottom = box
    _write(draw, (left, top), panel.title, _INK, _TEXT + 2)
    _write(draw, (left, top + 24), panel.unit, _GREY)
    for number, row in enumerate(rows):
        middle = top + _HEAD + _LINE * number + _LINE // 2
        _write(draw, (left, middle), row["estimator"], _INK, anchor="lm")
    found = [(n, row[panel.key]) for n, row in enumerate(rows) if row.get(panel.key)]
    if not found:
        return
    ticks = ticks_of([value for _, spread in found for value in spread.values])
    axis = left + _NAMES, right - 70  # room for the numbers

    def place(value: float) -> float:
        share = (value - ticks[0]) / (ticks[-1] - ticks[0])
        return axis[0] + share * (axis[1] - axis[0])

    end = bottom - _FOOT
    for tick in ticks:
        draw.line((place(tick), top + _HEAD, place(tick), end), _FAINT)
        _write(draw, (place(tick), end + 6), f"{tick:g}", _GREY, anchor="ma")
    for number, spread in found:
        _draw_spread(draw, spread, place, top + _HEAD + _LINE * number + _LINE // 2, right)


def _draw_spread(draw: ImageDraw.ImageDraw, spread: Spread, place, middle: int, right: int) -> None:
    low, high = place(min(spread.values)), place(max(spread.values))
    draw.line((low, middle, high, middle), _DOT, width=3)
    for value in spread.values:
        _dot(draw, place(value), middle, 4, _DOT)
    _dot(draw, place(spread.mean), middle, 6, _MEAN)
    _write(draw, (right, middle), f"{spread.mean:.3g}", _INK, anchor="rm")


def ticks_of(values: Sequence[float]) -> list[float]:
    """Returns round, evenly spaced ticks that enclose the values."""
    low, high = min(values), max(values)
    step = _round_step((high - low) / _TICKS or abs(high) / _TICKS or 1.0)
    # Tolerates rounding of values that are ticks.
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _round_step(least: float) -> float:
    """Rounds up to 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * 0.999)


def _dot(draw: ImageDraw.ImageDraw, x: float, y: float, radius: int, colour) -> None:
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)


def _write(draw, position, text: str, colour, size: int = _TEXT, anchor: str = "la") -> None:
    draw.text(position, text, colour, ImageFont.load_default(size), anchor=anchor)
