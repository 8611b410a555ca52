"""Search for captions: batched in the graph, or one image at a time in a Python loop."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from benchmarks import models
from benchmarks.baseline import Baseline, BeamLoop
from benchmarks.case import Case, Row, Tables
from benchmarks.measure import interleaved
from benchmarks.shapes import Shape
from sat_tf.config import SearchConfig
from sat_tf.runs import TrainedCaptioner

MAX_LENGTH = 12
"""Words per caption; those of Flickr8k have 11 on average."""
BEAMS = (1, 5)
BASELINE, SAT_TF = "baseline", "sat_tf"
_LOOPED = 3  # images per turn of the loop in Python


@dataclass(frozen=True)
class Side:
    """One way to search."""

    about: Row
    images: int
    call: Callable[[], float]


def measure(case: Case) -> Tables:
    """Measures `search`: images/s of each side over batch sizes, with the same weights."""
    settings, shape = case.settings, case.shape
    # Only sampling makes the graph of hard attention differ from that of soft.
    captioners = {
        (kind, precision): untrained(shape, kind, precision)
        for kind in (("soft", "hard") if settings.full else ("soft",))
        for precision in models.PRECISIONS
    }
    loop = Baseline(shape, models.run_config(shape))
    loop.copy_weights(captioners["soft", "float32"].model.decoder)
    sides = [looped(loop, shape, beam) for beam in BEAMS]
    sides += [
        batched(captioner, shape, beam, size, {"attention": kind, "precision": precision})
        for (kind, precision), captioner in captioners.items()
        for beam in BEAMS
        for size in settings.search_batches
    ]
    return {"search": _rows(sides, settings.repeats)}


def untrained(
    shape: Shape, kind: models.Kind = "soft", precision: models.Precision = "float32"
) -> TrainedCaptioner:
    """Makes a captioner whose captions never end early; hard attention samples."""
    model = models.captioner(shape, models.run_config(shape, kind, precision))
    captioner = models.talkative(model)
    if kind == "hard":
        captioner.set_inference("sample")
    return captioner


def batched(captioner: TrainedCaptioner, shape: Shape, beam: int, size: int, about: Row) -> Side:
    """Searches `size` images at once with the captioner's own search."""
    search = SearchConfig(beam=beam, max_length=MAX_LENGTH)
    turns = itertools.cycle([_annotations(shape, size, seed) for seed in range(3)])  # none cached

    def call() -> float:
        return float(np.mean(captioner.search(next(turns), search).lengths[:, 0]))

    return Side({"side": SAT_TF, **about, "beam": beam, "batch": size}, size, call)


def looped(model: Baseline, shape: Shape, beam: int) -> Side:
    """Searches a few images one by one with the loop in Python."""
    loop = BeamLoop(model, shape, SearchConfig(beam=beam, max_length=MAX_LENGTH))
    images = _annotations(shape, _LOOPED, 0)

    def call() -> float:
        return float(np.mean([len(loop.caption(image)[0]) for image in images]))

    about = {"side": BASELINE, "attention": "soft", "precision": "float32"}
    return Side({**about, "beam": beam, "batch": 1}, _LOOPED, call)


def _annotations(shape: Shape, images: int, seed: int) -> tf.Tensor:
    size = [images, shape.locations, shape.annotation_dim]
    return tf.constant(np.random.default_rng(seed).random(size, np.float32))


def _rows(sides: list[Side], repeats: int) -> list[Row]:
    words: dict[int, float] = {}
    calls = {
        n: lambda n=n, side=side: words.update({n: side.call()}) for n, side in enumerate(sides)
    }
    # The second turn may trace again, for any shape.
    took = interleaved(calls, repeats, warm_up=2)
    rates = [side.images / statistics.median(took[n]) for n, side in enumerate(sides)]
    base = {
        side.about["beam"]: rate
        for side, rate in zip(sides, rates, strict=True)
        if side.about["side"] == BASELINE
    }
    return [
        side.about
        | {
            "images_s": rate,
            "words": words[n],
            "times_baseline": rate / base[side.about["beam"]],
        }
        for n, (side, rate) in enumerate(zip(sides, rates, strict=True))
    ]
