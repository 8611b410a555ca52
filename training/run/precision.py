"""The faster precision of matrix products on this machine."""

from __future__ import annotations

import time

import tensorflow as tf

WORTH = 1.1
"""Least speed-up of products that makes bfloat16 worth it: a smaller one is lost in casts."""
_PRODUCTS, _ROUNDS = 4, 4


def faster_precision() -> str:
    """Returns the precision whose products are faster here, for `--fit.precision auto`.

    Not every processor with bfloat16 instructions is faster with them, so one product of each is
    timed. The choice is kept in the run's configuration: a resumed run does not change it.
    """
    seconds = product_seconds()
    ratio = seconds["float32"] / seconds["bfloat16"]
    precision = "bfloat16" if ratio >= WORTH else "float32"
    print(f"Precision {precision}: here products are {ratio:.1f} times as fast in bfloat16.")
    return precision


def product_seconds(side: int = 2048) -> dict[str, float]:
    """Times products of square matrices, float32 and bfloat16 in turns; the best of each."""
    best = {}
    matrices = {name: tf.ones([side, side], name) for name in ("float32", "bfloat16")}
    for number in range(_ROUNDS + 1):
        for name, matrix in matrices.items():
            start = time.perf_counter()
            for _ in range(_PRODUCTS):
                product = tf.matmul(matrix, matrix)
            product[0, 0].numpy()  # waits for a GPU
            if number:  # the first round warms up
                best[name] = min(best.get(name, float("inf")), time.perf_counter() - start)
    return best
