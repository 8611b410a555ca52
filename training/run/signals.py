"""Defers SIGTERM and SIGINT until the step under way has ended and the state is saved."""

from __future__ import annotations

import signal
import threading
from types import FrameType

SIGNALS = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "Ctrl-C"}
"""Signals that are deferred, with their names in messages."""


class Interrupted(KeyboardInterrupt):
    """The process has to stop; no `except Exception` catches it.

    Attributes:
        status: Exit status, 128 plus the signal's number.
    """

    def __init__(self, number: int, saved: str) -> None:
        super().__init__(
            f"Stopped by {SIGNALS[number]}. {saved}Start the same command again to resume."
        )
        self.status = 128 + number


class Interrupts:
    """Context where SIGTERM and SIGINT raise `Interrupted`: at once, or when released.

    A second signal meets Python's default handlers and ends the process without waiting.

    Attributes:
        waiting: The signal that has come since `hold`, here or in another process of the run.
    """

    def __init__(self) -> None:
        self._held = False
        self.waiting: int | None = None
        self._saved = ""
        self._previous: dict[int, signal.Handlers] = {}

    def hold(self) -> None:
        """Defers signals from here on, as there is a state to save."""
        self._held = True

    def release(self, saved: str) -> None:
        """Ends the deferral, as the state is saved.

        Raises:
            Interrupted: A signal is waiting.
        """
        self._held, self._saved = False, f"{saved} "
        if self.waiting is not None:
            raise Interrupted(self.waiting, self._saved)

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # no other may set handlers
            for number in SIGNALS:
                handler = signal.getsignal(number)
                # A shell's background job ignores Ctrl-C and continues to do so.
                if handler not in (signal.SIG_IGN, None):
                    self._previous[number] = handler
        self.listen()
        return self

    def listen(self) -> None:
        """Installs the handlers again: TensorFlow's multi-worker strategy replaces SIGTERM's."""
        for number in self._previous:
            signal.signal(number, self._receive)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number: int, _: FrameType | None) -> None:
        for other in self._previous:
            default = signal.default_int_handler if other == signal.SIGINT else signal.SIG_DFL
            signal.signal(other, default)
        self.waiting = number
        if not self._held:
            raise Interrupted(number, self._saved)
