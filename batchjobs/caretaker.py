"""The thread that looks after a deployment beside its workers: validates new jobs, publishes ended
ones, takes over from the dead, rings bells that were lost, removes what nobody needs any more, and
warns of jobs that will not end in time. Beside it go two errands: schedules, and telling of events.

Every server has one, and `batchjobs beat` is one by itself; what one is at, the others leave alone.
It holds nothing that a crash could lose: any worker, or the next caretaker, goes on where it was.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from batchjobs.deployment import Deployment
from batchjobs.errands import Errand
from batchjobs.errors import BatchJobsError
from batchjobs.files import remove_expired, remove_orphans
from batchjobs.forecast import Forecast
from batchjobs.notifications.office import Office
from batchjobs.queue import claims, events
from batchjobs.risks import RiskWatch
from batchjobs.schedules.firing import tick
from batchjobs.worker.tending import advance, take_stock

RETRY_SECONDS = 30
"""How long work that failed is left alone."""
EXPIRED_EVERY_SECONDS = 60
SWEEP_EVERY_SECONDS = 3600
RING_EVERY_SECONDS = 30
TICK_SECONDS = 5
"""Between two looks at the schedules. It decides how late a slot may begin, and nothing else."""

logger = logging.getLogger(__name__)


class Caretaker:
    """Looks every `poll_seconds`, and at once when `ring` is called."""

    def __init__(self, deployment: Deployment, forecast: Forecast | None = None) -> None:
        self._deployment = deployment
        self._forecast = forecast or Forecast(deployment)
        self._risks = RiskWatch()
        self._bell = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="caretaker", daemon=True)
        self._not_before: dict[str, float] = {}
        self._schedules = Errand(
            "the schedules", lambda _: tick(deployment), every_seconds=TICK_SECONDS
        )
        self._notifications = Errand(
            "notifications",
            Office(deployment).work,
            every_seconds=deployment.settings.poll_seconds,
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        """Stops within `stop_grace_seconds` at the end, or is left behind, which is safe."""
        grace = self._deployment.settings.stop_grace_seconds
        self._thread.start()
        with self._schedules.running(grace), self._notifications.running(grace):
            try:
                yield
            finally:
                self._stopping.set()
                self._bell.set()
                self._thread.join(grace)

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def ring(self) -> None:
        """There is something to do now."""
        self._bell.set()

    def ring_for_schedules(self) -> None:
        """A slot is due now."""
        self._schedules.ring()

    def look(self) -> None:
        """Do what there is to do, each thing by itself: one that fails does not stop another."""
        self._attempt("the files whose time is up", self._remove_expired, EXPIRED_EVERY_SECONDS)
        self._attempt("what crashes have left", self._sweep, SWEEP_EVERY_SECONDS)
        self._attempt("the queue", self._advance_all)
        self._attempt("lost bells", self._ring_for_waiting, RING_EVERY_SECONDS)
        self._attempt("the deadlines", lambda: self._risks.look(self._forecast.outlooks()))

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._bell.clear()
            self.look()
            self._bell.wait(self._deployment.settings.poll_seconds)

    def _advance_all(self) -> None:
        for job_id in take_stock(self._deployment):
            if self._stopping.is_set():
                return
            self._attempt(job_id, partial(advance, self._deployment, job_id), job_id=job_id)

    def _remove_expired(self) -> None:
        remove_expired(self._deployment)

    def _sweep(self) -> None:
        self._deployment.store.sweep()
        remove_orphans(self._deployment)
        self._deployment.database.transact(
            lambda session: events.remove_old(session, self._deployment.clock)
        )

    def _ring_for_waiting(self) -> None:
        """A worker that missed its message, or came after it, is told again."""
        with self._deployment.database.read() as session:
            waiting = claims.waiting_models(session)
        self._deployment.bell.ring(waiting)

    def _attempt(
        self, what: str, work: Callable[[], None], every_seconds: float = 0, **ids: str
    ) -> None:
        if time.monotonic() < self._not_before.get(what, 0):
            return
        self._not_before[what] = time.monotonic() + every_seconds
        try:
            work()
        except BatchJobsError as failed:
            self._not_before[what] = time.monotonic() + RETRY_SECONDS
            logger.error("Cannot look after %s now: %s", what, failed, extra=ids)
        except Exception:
            self._not_before[what] = time.monotonic() + RETRY_SECONDS
            logger.exception("Cannot look after %s now", what, extra=ids)
