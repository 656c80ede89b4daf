"""What jobs need that no model does: taken over from the dead, validated, expired, finalized."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy.orm import Session

from batchjobs.deployment import Deployment
from batchjobs.finalize import finalize
from batchjobs.intake import validate
from batchjobs.obs.metrics import LEASE_RESCUES
from batchjobs.queue import claims, jobs, workers
from batchjobs.states import JobState
from batchjobs.worker.presence import release_dead

logger = logging.getLogger(__name__)


def tend(deployment: Deployment, job_id: str | None = None) -> None:
    """Do what needs no model: take over from the dead, validate, expire, finalize.

    Raises NotFoundError for an unknown job.
    """
    unsettled = take_stock(deployment)
    for each in unsettled if job_id is None else [job_id]:
        advance(deployment, each)


def take_stock(deployment: Deployment) -> Sequence[str]:
    """Take over from the dead, end what is overdue. The jobs to `advance`, most urgent first."""
    settings = deployment.settings

    def take_over(session: Session) -> _Stock:
        dead = 0
        if deployment.database.is_embedded:
            dead = release_dead(session, settings.workers_dir)
        workers.remove_dead(session, deployment.clock, lease_seconds=settings.lease_seconds)
        return _Stock(
            rescued=dead + claims.rescue(session, deployment.clock),
            expired=tuple(jobs.expire_due(session, deployment.clock)),
            unsettled=tuple(jobs.unsettled(session)),
        )

    stock = deployment.database.transact(take_over)
    if stock.rescued:
        LEASE_RESCUES.inc(stock.rescued)
        logger.info("Taken back from silent or dead workers: %d shards", stock.rescued)
    for job_id in stock.expired:
        logger.info("Job's window has closed", extra={"job_id": job_id})
    return stock.unsettled


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stock:
    rescued: int
    expired: tuple[str, ...]
    unsettled: tuple[str, ...]


def advance(deployment: Deployment, job_id: str) -> None:
    """Validate or finalize one job, if that is what it waits for and no other process is at it.

    Raises NotFoundError for an unknown job.
    """
    state = deployment.database.transact(
        partial(jobs.settle, clock=deployment.clock, job_id=job_id)
    )
    if state is None:
        return
    with deployment.database.alone(job_id) as is_alone:
        if not is_alone:
            return
        if state == JobState.VALIDATING:
            validate(deployment, job_id)
        else:
            finalize(deployment, job_id)
