"""Ends a process whose engine hangs, so that its shards run elsewhere and the line is found."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import Self

EXIT_CODE = 7


class Watchdog:
    """Alive while `step` is called; a context that watches from a thread of its own."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._last = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def step(self) -> None:
        """The engine has come this far."""
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        self.step()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(self._seconds / 4):
            if time.monotonic() - self._last > self._seconds:
                sys.stderr.write(
                    f"\nThe engine made no step for {self._seconds:g} seconds and was ended;"
                    " what is checkpointed is kept, and the job can be resumed.\n"
                )
                sys.stderr.flush()
                os._exit(EXIT_CODE)
