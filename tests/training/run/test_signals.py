"""Signals wait until the state is saved, once; then they end the run."""

import ctypes
import os
import signal

import pytest

from training.run.signals import Interrupted, Interrupts

BOTH = pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "Ctrl-C")]
)


@pytest.fixture(autouse=True)
def ctrl_c_is_not_ignored():
    """A shell's background job ignores Ctrl-C, and so would tests that run in one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@BOTH
def test_a_signal_ends_the_run_at_once_when_there_is_nothing_to_save(number, name):
    with Interrupts(), pytest.raises(Interrupted, match=f"Stopped by {name}. Start the") as stop:
        send(number)
    assert stop.value.status == 128 + number


@BOTH
def test_a_held_signal_waits_until_the_state_is_saved(number, name):
    with Interrupts() as interrupts:
        interrupts.hold()
        send(number)
        assert interrupts.waiting
        with pytest.raises(Interrupted, match=f"Stopped by {name}. It is saved. Start the same"):
            interrupts.release("It is saved.")


def test_a_handler_that_a_library_has_put_in_between_is_replaced():
    ignore = ctypes.c_void_p(1)
    with Interrupts() as interrupts:
        ctypes.CDLL(None).signal(signal.SIGTERM, ignore)  # as C code does, behind Python's back
        send(signal.SIGTERM)
        interrupts.listen()
        with pytest.raises(Interrupted, match="Stopped by SIGTERM"):
            send(signal.SIGTERM)


def test_a_second_ctrl_c_does_not_wait():
    with Interrupts() as interrupts:
        interrupts.hold()
        send(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt) as stop:
            send(signal.SIGINT)
    assert not isinstance(stop.value, Interrupted)


def test_the_handlers_of_before_come_back_and_what_was_ignored_stays_so():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with Interrupts(), pytest.raises(Interrupted):
        send(signal.SIGTERM)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            send(signal.SIGINT)
            assert interrupts.waiting is None
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
