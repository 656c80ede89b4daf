"""Stopping on request: the first signal ends the work cleanly, the second ends the process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from batchjobs.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignal:
    """Says whether to stop. A handler only sets it; the work looks between steps.

    Should the work not get there within `grace_seconds`, the process ends with `forced_exit`:
    what was checkpointed is safe, as after any crash. `advice` then says how to go on.
    """

    def __init__(self, *, grace_seconds: float, forced_exit: int, advice: str = "") -> None:
        self._grace_seconds = grace_seconds
        self._forced_exit = forced_exit
        self._advice = advice
        self._asked = threading.Event()
        self._news = threading.Event()
        self._timer: threading.Timer | None = None

    @property
    def is_set(self) -> bool:
        return self._asked.is_set()

    def set(self) -> None:
        self._asked.set()
        self._news.set()

    def ask(self) -> None:
        """Set it, and end the process should the work not heed it in time."""
        self.set()
        self._timer = threading.Timer(
            self._grace_seconds,
            self._force,
            ("Stopped: the running step did not end in time; checkpointed results are kept.",),
        )
        self._timer.daemon = True
        self._timer.start()

    def wake(self) -> None:
        """End a `wait`, for there may be work."""
        self._news.set()

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or as soon as woken or asked to stop."""
        self._news.wait(seconds)
        if not self._asked.is_set():
            self._news.clear()

    def end(self) -> None:
        """The work has ended in time."""
        if self._timer is not None:
            self._timer.cancel()

    def check(self) -> None:
        """Raises Interrupted once asked to stop."""
        if self._asked.is_set():
            raise Interrupted("Stopped as asked; everything finished is kept.")

    @contextmanager
    def install(self) -> Iterator[None]:
        """Listen to SIGINT and SIGTERM in this context; main thread only."""
        before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        try:
            yield
        finally:
            self.end()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._asked.is_set():
            self._force(f"Stopped at once by a second signal ({signal.Signals(number).name}).")
        self.ask()

    def _force(self, why: str) -> None:
        sys.stderr.write(f"\n{why} {self._advice}".rstrip() + "\n")
        sys.stderr.flush()
        os._exit(self._forced_exit)
