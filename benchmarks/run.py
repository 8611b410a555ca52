"""Measure this machine: `python -m benchmarks.run [--only step search]`.

Training steps and searches: sat_tf and the baseline take turns. A step is measured at its best
batch size. The baseline searches one image at a time in a Python loop. docs/performance.md explains
the figures.
"""

from __future__ import annotations

import functools
import itertools
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from benchmarks import baseline, models
from benchmarks.measure import command, format_table, machine, medians
from benchmarks.models import SHAPES, Shape
from sat_tf.config import SearchConfig
from training.data.batches import pad_tokens, plan_epoch

_EPOCH = 30_000  # captions that batches are chosen from, as many as Flickr8k trains on
ROTATION = 3  # batches used in turn, so that none stays in a cache

Row = dict[str, Any]


def run(
    only: tuple[Literal["step", "search"], ...] = ("step", "search"),
    shapes: tuple[Literal["flickr8k", "coco", "toy"], ...] = ("flickr8k", "coco"),
    repeats: int = 3,
    batch_sizes: tuple[int, ...] = (32, 64, 128, 256, 512),
    search_batches: tuple[int, ...] = (1, 8, 32, 100),
) -> None:
    """Measures training steps and search.

    Args:
        only: The measurements.
        shapes: Sizes of captioner and data; toy is for a quick trial.
        repeats: Timed turns of each side; figures are medians.
        batch_sizes: Captions per training batch that each side tries.
        search_batches: Images per search.
    """
    sections = {"step": (measure_step, batch_sizes), "search": (measure_search, search_batches)}
    for section in only:
        measure, sizes = sections[section]
        rows: list[Row] = []
        for shape in shapes:
            print(f"Measuring {section} {shape} ...", file=sys.stderr, flush=True)
            rows += [{"shape": shape, **row} for row in measure(SHAPES[shape], sizes, repeats)]
        print(f"\n{format_table(rows)}", flush=True)
    print(f"\n{machine()}")


@dataclass(frozen=True)
class Variant:
    """One way to take a step."""

    side: str = "sat_tf"
    attention: models.Kind = "soft"
    precision: models.Precision = "float32"

    def train_function(self, shape: Shape) -> Callable[[dict[str, tf.Tensor]], object]:
        """Compiles the step, as `fit` does, for batches of any size and length."""
        if self.side == "baseline":
            return baseline.train_function(shape)
        config = models.run_config(shape, self.attention, self.precision)
        batch = {
            "annotations": tf.TensorSpec([None, shape.locations, shape.annotation_dim], tf.float16),
            "tokens": tf.TensorSpec([None, None], tf.int32),
        }
        step = models.captioner(shape, config).train_step
        return tf.function(step, input_signature=[batch], autograph=False)


VARIANTS = (
    Variant("baseline"),
    *(Variant(precision=precision) for precision in models.PRECISIONS),
    *(Variant(attention="hard", precision=precision) for precision in models.PRECISIONS),
)


@dataclass(frozen=True)
class Batches:
    """Batches of one size, `annotations` `[B, L, D]` and `tokens` int32 `[B, T + 1]` each.

    Attributes:
        batches: Those of sat_tf are bucketed by length, in the precision of the feature store;
            those of the baseline are in any order.
        captions: Number of captions in all batches.
    """

    batches: tuple[dict[str, tf.Tensor], ...]
    captions: int

    @classmethod
    def of(cls, shape: Shape, side: str, size: int) -> Batches:
        """Makes batches with lengths that represent an epoch."""
        lengths = models.caption_lengths(_EPOCH)
        if side == "baseline":
            dtype, chosen = "float32", lengths[: ROTATION * size].reshape(ROTATION, size)
        else:  # at the 1/6, 1/2 and 5/6 quantiles of an epoch's batches, by length
            plan = [batch for batch in plan_epoch(lengths, size, 0, 0) if len(batch) == size]
            plan.sort(key=lambda batch: lengths[batch].mean())
            places = [len(plan) * (2 * n + 1) // (2 * ROTATION) for n in range(ROTATION)]
            dtype, chosen = "float16", [lengths[plan[place]] for place in places]
        made = []
        for seed, words in enumerate(chosen):
            tokens = pad_tokens(models.caption_tokens(words, shape.vocabulary_size))
            drawn = models.annotations(shape, size, dtype, seed)
            made.append({"annotations": drawn, "tokens": tf.constant(tokens)})
        return cls(tuple(made), ROTATION * size)


def measure_step(
    shape: Shape, batch_sizes: Sequence[int], repeats: int, variants: Sequence[Variant] = VARIANTS
) -> list[Row]:
    """Measures each variant at every batch size; returns a row of each at its best.

    Variants take turns at every batch: the load of a shared machine may change within seconds.
    """
    steps = {variant: variant.train_function(shape) for variant in variants}
    sweep: list[Row] = []
    for size in batch_sizes:
        batches = {side: Batches.of(shape, side, size) for side in {v.side for v in variants}}
        calls: dict[Any, Callable[[], object]] = {}
        for index in range(ROTATION):
            for v, step in steps.items():
                batch = batches[v.side].batches[index]
                calls[v, index] = lambda step=step, batch=batch: step(batch)
        took = medians(calls, repeats)
        for v in variants:
            seconds = sum(took[v, index] for index in range(ROTATION))
            rate = batches[v.side].captions / seconds
            sweep.append(vars(v) | {"batch": size, "captions_s": rate})
    best = [
        max(
            (row for row in sweep if row.items() >= vars(v).items()),
            key=lambda row: row["captions_s"],
        )
        for v in variants
    ]
    base = {row["side"]: row["captions_s"] for row in reversed(best)}.get("baseline", np.nan)
    return [row | {"times_baseline": row["captions_s"] / base} for row in best]


LENGTH = 12
"""Words per caption; those of Flickr8k have 11 on average."""
_BEAMS = (1, 5)
_LOOPED = 3  # images per turn of the loop in Python


def measure_search(shape: Shape, batches: Sequence[int], repeats: int) -> list[Row]:
    """Measures images/s of each side over batch sizes; no caption ends early."""
    sides: list[tuple[dict[str, Any], Callable[[], object]]] = []
    for beam in _BEAMS:
        loop, images = baseline.beam_search(shape, beam, LENGTH), models.annotations(shape, _LOOPED)
        about = {"side": "baseline", "precision": "float32", "beam": beam, "batch": 1}
        sides.append((about, lambda loop=loop, images=images: [loop(image) for image in images]))
    for precision in models.PRECISIONS:
        config = models.run_config(shape, precision=precision)
        captioner = models.talkative(models.captioner(shape, config))
        for beam, size in itertools.product(_BEAMS, batches):
            about = {"side": "sat_tf", "precision": precision, "beam": beam, "batch": size}
            search = SearchConfig(beam=beam, max_length=LENGTH)
            drawn = [models.annotations(shape, size, seed=seed) for seed in range(3)]
            turns = itertools.cycle(drawn)  # so that none stays in a cache
            find = functools.partial(captioner.search, search=search)
            sides.append((about, lambda find=find, turns=turns: find(next(turns))))
    calls = {number: call for number, (_, call) in enumerate(sides)}
    took = medians(calls, repeats, warm_up=2)  # the second turn may trace again, for any shape
    rows, base = [], {}
    for number, (about, _) in enumerate(sides):
        images = _LOOPED if about["side"] == "baseline" else about["batch"]
        rate = images / took[number]
        base.setdefault(about["beam"], rate)
        rows.append(about | {"images_s": rate, "times_baseline": rate / base[about["beam"]]})
    return rows


if __name__ == "__main__":
    # TensorFlow warns of functions traced for several shapes, which are intended here.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    sys.exit(command(run))
