"""Server-side batching: requests of several callers in one run, as TF Serving joins them.

Written after its `batching_session.cc` and `shared_batch_scheduler.h`, and as unforgiving: requests
that differ in any dimension but the first, or one that the graph refuses, fail those beside them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import grpc
import numpy as np

from serving.local_server import statuses
from serving.local_server.batching_parameters import BatchingParameters

Feeds = Mapping[str, np.ndarray]
# (fetches, feeds, seconds left or None) -> outputs, all of the feeds' first dimension.
Run = Callable[[Sequence[str], Feeds, float | None], list[np.ndarray]]


@dataclass(eq=False)
class _Task:
    """One request: its feeds and rows, when it is too late for it, its outputs."""

    feeds: Feeds
    rows: int
    deadline: float | None
    outputs: Future = field(default_factory=Future)


@dataclass(eq=False)
class _Batch:
    tasks: list[_Task] = field(default_factory=list)
    closed: bool = False

    @property
    def rows(self) -> int:
        return sum(task.rows for task in self.tasks)


class Batcher:
    """Joins concurrent calls along the first dimension, and splits their outputs.

    The first call of a batch runs it for all: after the timeout, or once the batch is full, and
    when one of the batch threads' places is free.

    Args:
        parameters: TF Serving's parameters.
        run: Runs a batch.
    """

    def __init__(self, parameters: BatchingParameters, run: Run) -> None:
        self._parameters, self._run_batch = parameters, run
        # Batches that no one runs yet, by feeds and fetches; the last may be open.
        self._queues: dict[tuple, deque[_Batch]] = {}
        self._changed = threading.Condition()
        self._threads = threading.Semaphore(parameters.num_batch_threads)

    def run(self, fetches: Sequence[str], feeds: Feeds, seconds: float | None) -> list[np.ndarray]:
        """Runs a call in a batch with others of the same feeds and fetches.

        Args:
            fetches: Names of the outputs.
            feeds: Inputs by name, each with the same first dimension.
            seconds: Time left; a batch has the longest time of its calls.

        Returns:
            The outputs of this call's rows.

        Raises:
            StatusError: The call cannot be batched, finds no place, or does not fit those beside
                it; whatever else the batch's run raises.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        task = _Task(feeds, self._rows(feeds), deadline)
        with self._changed:
            queue = self._queues.setdefault((tuple(sorted(feeds)), tuple(fetches)), deque())
            batch = self._join(queue, task)
        if batch.tasks[0] is task:
            self._process(queue, batch, fetches)
        return task.outputs.result()

    def _rows(self, feeds: Feeds) -> int:
        if not feeds:
            raise statuses.invalid("Batching Run() must have at least one input tensor")
        if not all(value.ndim for value in feeds.values()):
            raise statuses.invalid("Batching Run() input tensors must have at least one dimension")
        sizes = {len(value) for value in feeds.values()}
        if len(sizes) > 1:
            raise statuses.invalid(
                "Batching Run() input tensors must have equal 0th-dimension size"
            )
        (rows,) = sizes
        if rows > self._parameters.max_batch_size:
            raise statuses.too_many_rows(rows, self._parameters.max_batch_size)
        return rows

    def _join(self, queue: deque[_Batch], task: _Task) -> _Batch:
        last = queue[-1] if queue else None
        if last is None or last.closed or last.rows + task.rows > self._parameters.max_batch_size:
            if queue and len(queue) >= self._parameters.max_enqueued_batches:
                raise statuses.StatusError(
                    grpc.StatusCode.UNAVAILABLE,
                    "The batch scheduling queue to which this task was submitted is full",
                )
            if last is not None:
                last.closed = True  # for good, though the next batch may be run before it
            queue.append(_Batch())
        queue[-1].tasks.append(task)
        self._changed.notify_all()
        return queue[-1]

    def _process(self, queue: deque[_Batch], batch: _Batch, fetches: Sequence[str]) -> None:
        full = self._parameters.max_batch_size
        with self._changed:
            self._changed.wait_for(
                lambda: batch.closed or batch.rows >= full,
                self._parameters.batch_timeout_micros / 1e6,
            )
        with self._threads:
            with self._changed:
                queue.remove(batch)  # until now, others could join
            try:
                outputs = self._run_tasks(batch.tasks, fetches)
            except Exception as error:
                for task in batch.tasks:
                    task.outputs.set_exception(error)
                return
        for task, values in zip(batch.tasks, outputs, strict=True):
            task.outputs.set_result(values)

    def _run_tasks(self, tasks: list[_Task], fetches: Sequence[str]) -> list[list[np.ndarray]]:
        """Returns the outputs of each task."""
        seconds = _longest(tasks)
        rows = sum(task.rows for task in tasks)
        added = next((s for s in self._parameters.allowed_batch_sizes if s >= rows), rows) - rows
        merged = _merge(tasks, added, self._parameters.pad_variable_length_inputs)
        outputs = self._run_batch(fetches, merged, seconds)
        if not all(np.ndim(value) for value in outputs):
            raise statuses.precondition("Batched output tensor has 0 dimensions")
        if any(len(value) != rows + added for value in outputs):
            raise statuses.precondition(
                "Batched output tensor's 0th dimension does not equal the sum of the 0th "
                "dimension sizes of the input tensors"
            )
        ends = np.cumsum([task.rows for task in tasks])
        # What follows the last end are the rows added.
        split = [np.split(value, ends)[: len(tasks)] for value in outputs]
        return [[pieces[index] for pieces in split] for index in range(len(tasks))]


def _longest(tasks: list[_Task]) -> float | None:
    """Returns the longest time that is left to a task, seconds; None is unlimited."""
    if any(task.deadline is None for task in tasks):
        return None
    seconds = max(task.deadline for task in tasks) - time.monotonic()
    if seconds <= 0:
        raise statuses.StatusError(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "Run() timeout exceeded while waiting in batching queue",
        )
    return seconds


def _merge(tasks: list[_Task], added: int, pads: bool) -> Feeds:
    """Joins the feeds of all tasks, and repeats the last task's first row as often as asked."""
    if added and not tasks[-1].rows:
        # By its source (Tensor::Slice), TF Serving itself does not survive this.
        raise statuses.StatusError(
            grpc.StatusCode.INTERNAL,
            "TF Serving aborts here: it has no row of an empty request to fill a batch up to one "
            "of allowed_batch_sizes",
        )
    merged = {}
    for name in tasks[0].feeds:
        values = [task.feeds[name] for task in tasks]
        if pads:
            values = _padded(values)
        elif len({value.shape[1:] for value in values}) > 1:
            raise statuses.precondition(
                f"Tensors with name '{name}' from different tasks have different shapes and "
                "padding is turned off. Set pad_variable_length_inputs to true, or ensure that "
                "all tensors with the same name have equal dimensions starting with the first dim."
            )
        merged[name] = np.concatenate([*values, *[values[-1][:1]] * added])
    return merged


def _padded(values: list[np.ndarray]) -> list[np.ndarray]:
    """Fills each array up to the largest sizes with its first value; the batch stays as it is."""
    if len({value.ndim for value in values}) > 1:
        raise statuses.StatusError(
            grpc.StatusCode.INTERNAL,
            "TF Serving may abort here: with pad_variable_length_inputs it does not compare ranks",
        )
    sizes = np.max([value.shape for value in values], axis=0)[1:]
    padded = []
    for value in values:
        shape = (len(value), *sizes)
        if value.shape == shape:
            padded.append(value)
            continue
        if not value.size:
            raise statuses.invalid("Got empty tensor in batch of non-empty tensors.")
        filled = np.full(shape, value.flat[0], value.dtype)
        filled[tuple(slice(size) for size in value.shape)] = value
        padded.append(filled)
    return padded
