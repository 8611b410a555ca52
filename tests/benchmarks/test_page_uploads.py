"""Uploads are repeated only if the page asks for it."""

from __future__ import annotations

import httpx
import pytest

from benchmarks.page_uploads import upload


def client_of(*statuses: int) -> httpx.Client:
    """A page that gives these answers, one after another, and no more."""
    answers = iter([httpx.Response(status, json={"error": f"e{status}"}) for status in statuses])
    transport = httpx.MockTransport(lambda _: next(answers))
    return httpx.Client(base_url="http://page", transport=transport)


def test_an_upload_is_repeated_while_the_page_is_busy_or_loads():
    assert upload(client_of(503, 429, 200), b"image", "soft") >= 0


@pytest.mark.parametrize("status", [400, 500, 502, 504])
def test_any_other_answer_is_an_error_at_once(status):
    with pytest.raises(OSError, match=f"answers {status}: .*e{status}"):
        upload(client_of(status), b"image", "soft")


def test_an_upload_is_not_repeated_for_ever():
    with pytest.raises(OSError, match="answers 503"):
        upload(client_of(503, 503), b"image", "soft", within=-1.0)
