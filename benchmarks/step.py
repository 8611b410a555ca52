"""Training steps and searches: sat_tf and the baseline take turns.

A step has its side's best batch size. The baseline searches one image at a time in a Python loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import baseline, models
from benchmarks.measure import matrix_product, medians
from benchmarks.models import Shape
from sat_tf.config import SearchConfig
from sat_tf.trained.captioning import TrainedCaptioner
from training.data.batches import pad_tokens, plan_epoch

_EPOCH = 30_000  # captions that batches are chosen from, as many as Flickr8k trains on
ROTATION = 3  # batches used in turn, so that none stays in a cache

Row = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """One way to take a step."""

    side: str = "sat_tf"
    attention: models.Kind = "soft"
    precision: models.Precision = "float32"
    xla: bool = False

    def train_function(self, shape: Shape) -> Callable[[dict[str, tf.Tensor]], object]:
        """Compiles the step, as `fit` does, for batches of any size and length."""
        if self.side == "baseline":
            return baseline.train_function(shape)
        config = models.run_config(shape, self.attention, self.precision, self.xla)
        batch = {
            "annotations": tf.TensorSpec([None, shape.locations, shape.annotation_dim], tf.float16),
            "tokens": tf.TensorSpec([None, None], tf.int32),
        }
        step = models.captioner(shape, config).train_step
        return tf.function(step, input_signature=[batch], autograph=False, jit_compile=self.xla)


VARIANTS = (
    Variant("baseline"),
    *(
        Variant(precision=precision, xla=xla)
        for precision in models.PRECISIONS
        for xla in (False, True)
    ),
    *(Variant(attention="hard", precision=precision) for precision in models.PRECISIONS),
)


@dataclass(frozen=True)
class Batches:
    """Batches of one size, `annotations` `[B, L, D]` and `tokens` int32 `[B, T + 1]` each.

    Attributes:
        batches: Those of sat_tf are bucketed by length, in the precision of the feature store;
            those of the baseline are in any order.
        captions: Number of captions in all batches.
        words: Number of predictions: words and `<end>`, no padding.
    """

    batches: tuple[dict[str, tf.Tensor], ...]
    captions: int
    words: int

    @classmethod
    def of(cls, shape: Shape, side: str, size: int) -> Batches:
        """Makes batches whose lengths represent those of an epoch."""
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
        return cls(tuple(made), ROTATION * size, int(sum((n + 1).sum() for n in chosen)))

    @property
    def padding(self) -> float:
        """Share of padding among the predictions."""
        return 1.0 - self.words / sum(
            int(tf.size(batch["tokens"][:, 1:])) for batch in self.batches
        )


def measure_step(
    shape: Shape, batch_sizes: Sequence[int], repeats: int, variants: Sequence[Variant] = VARIANTS
) -> dict[str, list[Row]]:
    """Measures `sweep`, captions/s over batch sizes, and `step`, each variant at its best."""
    steps = {variant: variant.train_function(shape) for variant in variants}
    swept = {v: step for v, step in steps.items() if v.attention == "soft" and not v.xla}
    sweep: list[Row] = []
    for size in batch_sizes:
        batches = _batches(shape, dict.fromkeys(swept, size))
        for v, seconds in _seconds(swept, batches, 1).items():
            rate = batches[v].captions / seconds
            about = {"side": v.side, "precision": v.precision, "batch": size}
            sweep.append({**about, "captions_s": rate})
    sweep_by_rate = sorted(sweep, key=lambda row: row["captions_s"])
    best = {(row["side"], row["precision"]): row["batch"] for row in sweep_by_rate}
    sizes = {v: best[v.side, v.precision] for v in variants}
    batches = _batches(shape, sizes)
    products = {v.precision: matrix_product(v.precision) for v in variants}
    calls = {precision: call for precision, (_, call) in products.items()}
    seconds = _seconds(steps, batches, repeats, calls)
    rows = []
    for v in variants:
        product = products[v.precision][0] / seconds[v.precision]
        flops = shape.training_flops(batches[v].captions, batches[v].words) / seconds[v]
        row = vars(v) | {"batch": sizes[v], "captions_s": batches[v].captions / seconds[v]}
        row |= {"tokens_s": batches[v].words / seconds[v], "padding": batches[v].padding}
        row |= {"gflops": flops / 1e9, "product_gflops": product / 1e9}
        rows.append(row | {"product_share": flops / product})
    base = {row["side"]: row["captions_s"] for row in reversed(rows)}.get("baseline", np.nan)
    return {"sweep": sweep, "step": [r | {"times_baseline": r["captions_s"] / base} for r in rows]}


def _batches(shape: Shape, sizes: dict[Variant, int]) -> dict[Variant, Batches]:
    """Makes the batches of each variant; variants of one side and size share them."""
    kinds = {(v.side, size) for v, size in sizes.items()}
    made = {kind: Batches.of(shape, *kind) for kind in kinds}
    return {v: made[v.side, size] for v, size in sizes.items()}


def _seconds(
    steps: dict[Variant, Callable],
    batches: dict[Variant, Batches],
    repeats: int,
    others: dict[str, Callable[[], object]] | None = None,
) -> dict[Any, float]:
    """Returns median seconds of each variant's pass over its batches, and of each other call.

    Sides take turns at every batch: the load of a shared machine may change within seconds.
    """
    calls: dict[Any, Callable[[], object]] = dict(others or {})
    for index in range(ROTATION):
        for v, step in steps.items():
            batch = batches[v].batches[index]
            calls[v, index] = lambda step=step, batch=batch: step(batch)
    took = medians(calls, repeats)
    passes = {v: sum(took[v, index] for index in range(ROTATION)) for v in steps}
    return passes | {name: took[name] for name in others or {}}


LENGTH = 12
"""Words per caption; those of Flickr8k have 11 on average."""
_BEAMS = (1, 5)
_LOOPED = 3  # images per turn of the loop in Python


def measure_search(shape: Shape, batches: Sequence[int], repeats: int) -> dict[str, list[Row]]:
    """Measures `search`: images/s of each side over batch sizes; no caption ends early."""
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
