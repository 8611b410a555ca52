"""Search for captions: batched in the graph, or one image at a time in a Python loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import models
from benchmarks.baseline import beam_search
from benchmarks.measure import medians
from benchmarks.models import Shape
from sat_tf.config import SearchConfig
from sat_tf.runs import TrainedCaptioner

LENGTH = 12
"""Words per caption; those of Flickr8k have 11 on average."""
_BEAMS = (1, 5)
_LOOPED = 3  # images per turn of the loop in Python


def measure(
    shape: Shape,
    batches: Sequence[int],
    repeats: int,
    precisions: Sequence[models.Precision] = models.PRECISIONS,
) -> dict[str, list[dict[str, Any]]]:
    """Measures `search`: images/s of each side over batch sizes; no caption ends early."""
    sides: list[tuple[dict[str, Any], Callable[[], object]]] = []
    for beam in _BEAMS:
        loop, images = beam_search(shape, beam, LENGTH), models.annotations(shape, _LOOPED)
        about = {"side": "baseline", "precision": "float32", "beam": beam, "batch": 1}
        sides.append((about, lambda loop=loop, images=images: [loop(image) for image in images]))
    for precision in precisions:
        config = models.run_config(shape, precision=precision)
        captioner = models.talkative(models.captioner(shape, config))
        for beam, size in itertools.product(_BEAMS, batches):
            about = {"side": "sat_tf", "precision": precision, "beam": beam, "batch": size}
            sides.append((about, _batched(captioner, shape, beam, size)))
    calls = {number: call for number, (_, call) in enumerate(sides)}
    took = medians(calls, repeats, warm_up=2)  # the second turn may trace again, for any shape
    rows, base = [], {}
    for number, (about, _) in enumerate(sides):
        images = _LOOPED if about["side"] == "baseline" else about["batch"]
        rate = images / took[number]
        base.setdefault(about["beam"], rate)
        rows.append(about | {"images_s": rate, "times_baseline": rate / base[about["beam"]]})
    return {"search": rows}


def _batched(
    captioner: TrainedCaptioner, shape: Shape, beam: int, size: int
) -> Callable[[], object]:
    search = SearchConfig(beam=beam, max_length=LENGTH)
    # None stays in a cache.
    turns = itertools.cycle([models.annotations(shape, size, seed=seed) for seed in range(3)])
    return lambda: captioner.search(next(turns), search)
