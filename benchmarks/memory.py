"""Peak memory of one part at a time, each in its own process."""

from __future__ import annotations

from benchmarks.case import Case, Tables


def measure(case: Case) -> Tables:
    """Measures `memory`: one row for the case's part; `benchmarks.case` adds the peak."""
    batch = 0
    if case.part == "imports":
        # Every other part imports these too.
        from benchmarks import search, step  # noqa: F401
    elif case.part == "search":
        batch = case.settings.search_batches[-1]
        _search(case, batch)
    else:
        batch = case.settings.batch_size
        _train(case, batch)
    return {"memory": [{"what": case.part, "batch": batch}]}


def _train(case: Case, batch: int) -> None:
    from benchmarks.step import Stepper, Variant

    side, precision = case.part.split()
    stepper = Stepper(Variant(side, "soft", precision), case.shape)
    batches = stepper.batches(batch)
    for index in (*range(len(batches.batches)), 0):
        stepper(batches, index)


def _search(case: Case, batch: int) -> None:
    from benchmarks.search import BEAMS, batched, untrained

    side = batched(untrained(case.shape), case.shape, BEAMS[-1], batch, {})
    for _ in range(2):
        side.call()
