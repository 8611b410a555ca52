"""Parameters of server-side batching: TF Serving's `--batching_parameters_file`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf import text_format

from sat_tf.errors import invalid_value
from serving.messages import build_messages

_NUMBER = "Int64Value"
MESSAGES = {
    _NUMBER: [(1, "value", "INT64")],
    "BatchingParameters": [
        (1, "max_batch_size", _NUMBER),
        (2, "batch_timeout_micros", _NUMBER),
        (3, "max_enqueued_batches", _NUMBER),
        (4, "num_batch_threads", _NUMBER),
        (6, "allowed_batch_sizes", ["INT64"]),
        (7, "pad_variable_length_inputs", "BOOL"),
    ],
}


@dataclass(frozen=True)
class BatchingParameters:
    """Parameters under TF Serving's names, with its defaults.

    Attributes:
        max_batch_size: Rows per run; a request of more is refused.
        batch_timeout_micros: Time that a batch which is not full waits for further requests.
        max_enqueued_batches: Batches of a signature that wait; more are UNAVAILABLE.
        num_batch_threads: Runs at a time.
        allowed_batch_sizes: A batch is filled up to the next of these by repeating a row.
        pad_variable_length_inputs: Whether smaller inputs are padded by their first value, instead
            of failing their batch.
    """

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    allowed_batch_sizes: tuple[int, ...] = ()
    pad_variable_length_inputs: bool = False

    def __post_init__(self) -> None:
        for name, least in (
            ("max_batch_size", 1),
            ("batch_timeout_micros", 0),
            ("max_enqueued_batches", 0),
            ("num_batch_threads", 1),
        ):
            if getattr(self, name) < least:
                raise invalid_value(name, f"at least {least}", getattr(self, name))
        sizes = self.allowed_batch_sizes
        if sizes and (list(sizes) != sorted(set(sizes)) or sizes[-1] != self.max_batch_size):
            expected = f"increasing sizes, the last {self.max_batch_size} as max_batch_size"
            raise invalid_value("allowed_batch_sizes", expected, list(sizes))


def read_batching_parameters(path: Path) -> BatchingParameters:
    """Reads the text form of TF Serving's `BatchingParameters`.

    Raises:
        ValueError: The file is no such text, has fields that are not imitated, or a value out of
            range.
        OSError: The file cannot be read.
    """
    message = build_messages(MESSAGES, "sat_tf.batching")["BatchingParameters"]()
    try:
        text_format.Parse(path.read_text("utf-8"), message)
    except text_format.ParseError as error:
        raise invalid_value(
            "batching_parameters_file", "BatchingParameters", f"{path}: {error}"
        ) from None
    given = {}
    for described, value in message.ListFields():
        value = tuple(value) if described.name == "allowed_batch_sizes" else value
        given[described.name] = getattr(value, "value", value)
    return BatchingParameters(**given)
