"""Work that is done again and again in a thread of its own, as it may take long or wait for others:
it does not hold up the caretaker, and a failure of it is logged and tried again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from batchjobs.errors import BatchJobsError

RETRY_SECONDS = 30

logger = logging.getLogger(__name__)


class Errand:
    """`work` is given a function that says whether it is to stop early."""

    def __init__(
        self, what: str, work: Callable[[Callable[[], bool]], None], *, every_seconds: float
    ) -> None:
        self._what = what
        self._work = work
        self._every_seconds = every_seconds
        self._bell = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=what, daemon=True)

    @contextmanager
    def running(self, grace_seconds: float) -> Iterator[None]:
        """Stops within so long at the end, or is left behind, which is safe."""
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._bell.set()
            self._thread.join(grace_seconds)

    def ring(self) -> None:
        """There is something to do now."""
        self._bell.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._bell.clear()
            self._bell.wait(self._every_seconds if self._attempt() else RETRY_SECONDS)

    def _attempt(self) -> bool:
        try:
            self._work(self._stopping.is_set)
        except BatchJobsError as failed:
            logger.error("Cannot look after %s now: %s", self._what, failed)
        except Exception:
            logger.exception("Cannot look after %s now", self._what)
        else:
            return True
        return False
