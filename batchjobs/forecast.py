"""The outlook of all jobs that have not ended, as the database has them now, or almost now."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from sqlalchemy.orm import Session

from batchjobs.deployment import Deployment
from batchjobs.outlook import Outlook, foresee
from batchjobs.pace import Pace
from batchjobs.queue import backlog
from batchjobs.queue.backlog import Backlog

COST_SHARE = 0.05
"""Of its time, a process that is asked all the time spends no more than this on looking."""


def look_ahead(session: Session, deployment: Deployment) -> dict[str, Outlook]:
    """By job id. Jobs that have ended, or are about to, have none."""
    found = _take(session, deployment)
    return foresee(found.jobs, found.workers, found.now)


class Forecast:
    """What `look_ahead` said last; asked again when that is `poll_seconds` old, or older where
    looking takes long. For many threads."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._lock = threading.Lock()
        self._outlooks: Mapping[str, Outlook] = {}
        self._pace = Pace()
        self._rates: Mapping[str, float] = {}
        self._good_until = 0.0

    def outlooks(self) -> Mapping[str, Outlook]:
        """By job id. Raises DatabaseError."""
        with self._lock:
            if time.monotonic() >= self._good_until:
                self._look()
            return self._outlooks

    def rates(self) -> Mapping[str, float]:
        """Tokens a second by job id, of the open jobs that were looked at for long enough."""
        with self._lock:
            return self._rates

    def _look(self) -> None:
        began = time.monotonic()
        with self._deployment.database.read() as session:
            found = _take(session, self._deployment)
        self._outlooks = foresee(found.jobs, found.workers, found.now)
        self._pace.observe(began, found.done_tokens)
        self._rates = self._pace.per_second()
        now = time.monotonic()
        rest = max(self._deployment.settings.poll_seconds, (now - began) / COST_SHARE)
        self._good_until = now + rest


def _take(session: Session, deployment: Deployment) -> Backlog:
    return backlog.take(session, deployment.clock, lease_seconds=deployment.settings.lease_seconds)
