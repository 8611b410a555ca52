"""Errors of Spark, without Spark."""

import pytest

from sat_tf.spark import root_cause


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("An error\n: x.SparkException: aborted\n  at y\nCaused by: disk full", "disk"),
        ("Job aborted\nTraceback\n  File\nModuleNotFoundError: No\n\tat z", "ModuleNotFound"),
        ("first line\nsecond", "first line"),
        ("", "OSError"),
    ],
)
def test_the_cause_of_a_failed_job_is_one_line(text, cause):
    found = root_cause(OSError(text))
    assert found.startswith(cause) and "\n" not in found
