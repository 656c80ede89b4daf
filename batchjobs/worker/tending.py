"""What jobs need that no model does: taken over from the dead, validated, expired, finalized."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sqlalchemy.orm import Session

from batchjobs.deployment import Deployment
from batchjobs.finalize import finalize
from batchjobs.intake import validate
from batchjobs.queue import claims, jobs
from batchjobs.states import JobState
from batchjobs.worker.presence import release_dead


def tend(deployment: Deployment, job_id: str | None = None) -> None:
    """Do what needs no model: take over from the dead, validate, expire, finalize.

    Raises NotFoundError for an unknown job.
    """
    unsettled = take_stock(deployment)
    for each in unsettled if job_id is None else [job_id]:
        advance(deployment, each)


def take_stock(deployment: Deployment) -> Sequence[str]:
    """Take over from the dead, end what is overdue. The jobs to `advance`, most urgent first."""

    def take_over(session: Session) -> Sequence[str]:
        if deployment.database.is_embedded:
            release_dead(session, deployment.settings.workers_dir)
        claims.rescue(session, deployment.clock)
        jobs.expire_due(session, deployment.clock)
        return jobs.unsettled(session)

    return deployment.database.transact(take_over)


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
