"""Says in the log, once a job, that it is not expected to end in time."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from batchjobs.outlook import Outlook

logger = logging.getLogger(__name__)


class RiskWatch:
    """Remembers whom it has warned of, as long as the job is open."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def look(self, outlooks: Mapping[str, Outlook]) -> None:
        """`outlooks` are those of all open jobs."""
        self._told &= outlooks.keys()
        for job_id, outlook in outlooks.items():
            if outlook.at_risk and job_id not in self._told:
                self._told.add(job_id)
                logger.warning("Job is at risk: %s", _reason(outlook), extra={"job_id": job_id})


def _reason(outlook: Outlook) -> str:
    if outlook.notice is not None:
        return outlook.notice
    if outlook.eta is None:
        return "little is left of its window, and nobody can tell when it ends"
    return f"it is expected to end at {outlook.eta.isoformat(timespec='seconds')}, too late"
