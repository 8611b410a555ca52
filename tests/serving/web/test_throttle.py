"""Limits of uploads, by a clock that the test moves."""

from __future__ import annotations

import pytest

from serving.web.app import Throttle
from serving.web.captioning import UploadError


def test_so_many_per_minute_and_no_more():
    now = [0.0]
    throttle = Throttle(per_minute=3, clock=lambda: now[0])

    def passed() -> bool:
        try:
            with throttle.turn():
                return True
        except UploadError as error:
            assert error.status == 429
            return False

    assert [passed() for _ in range(4)] == [True, True, True, False]
    now[0] += 20.0  # a third of a minute: one more
    assert [passed() for _ in range(2)] == [True, False]


def test_so_many_at_once_and_no_more():
    throttle = Throttle(at_once=1)
    with throttle.turn(), pytest.raises(UploadError, match="at once"), throttle.turn():
        pass
    with throttle.turn():  # the place is free again
        pass
