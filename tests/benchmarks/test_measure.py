"""Clocks, the product's rate, the machine."""

from __future__ import annotations

import time

import pytest

from benchmarks.measure import MatrixProduct, interleaved, machine, medians


def test_sides_take_turns_after_warming_up():
    order = []
    calls = {name: lambda name=name: order.append(name) for name in "ab"}
    took = interleaved(calls, repeats=2, warm_up=1)
    assert order == list("ababab")
    assert [len(took[name]) for name in "ab"] == [2, 2]


def test_what_is_not_warm_is_not_counted():
    waits = iter([0.2, 0.0, 0.0, 0.0])
    assert medians({"side": lambda: time.sleep(next(waits))}, repeats=3)["side"] < 0.1


def test_a_median_is_of_the_repeats():
    waits = iter([0.0, 0.02, 0.3, 0.02])
    took = medians({"side": lambda: time.sleep(next(waits))}, repeats=3)
    assert took["side"] == pytest.approx(0.02, abs=0.015)


def test_processor_time_does_not_count_waiting():
    took = interleaved({"side": lambda: time.sleep(0.1)}, repeats=2, clock=time.process_time)
    assert max(took["side"]) < 0.05


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_product_is_taken_in_its_precision(precision):
    product = MatrixProduct(precision, size=8)
    assert product().dtype == precision
    assert product.flops == 2 * 8 * 8 * 8


def test_the_machine_is_named():
    about = machine()
    assert about["cpu"] and about["cores"] >= 1
    assert about["intra_op_threads"] >= 1 and about["inter_op_threads"] >= 1
    assert {"gpus", "tensorflow", "keras", "python"} < about.keys()
