"""A worker's run: look after what others left, then answer what can be claimed, model by model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from sqlalchemy.orm import Session

from batchjobs import catalogue
from batchjobs.deployment import Deployment
from batchjobs.finalize import finalize
from batchjobs.intake import validate
from batchjobs.models import Model
from batchjobs.obs.logs import log_fields
from batchjobs.obs.metrics import LEASE_RESCUES
from batchjobs.queue import claims, jobs, workers
from batchjobs.worker.engines import EngineSource
from batchjobs.worker.model_session import ModelSession
from batchjobs.worker.presence import present, release_dead
from batchjobs.worker.progress import ModelReport, Progress, RunReport
from batchjobs.worker.registration import Registration
from batchjobs.worker.stop import StopSignal

logger = logging.getLogger(__name__)


def run_jobs(
    deployment: Deployment,
    *,
    engines: EngineSource,
    stop: StopSignal,
    job_id: str | None = None,
    models: Collection[str] | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> RunReport:
    """Work on one job, or on all there are, until nothing is claimable.

    `models` are names of the catalogue; other shards are left to other workers.

    On return the job has ended, or other workers hold what is left of it.

    Raises:
        Interrupted: asked to stop; the jobs can be resumed.
        ModelError: a model cannot be loaded; the jobs wait for it.
        NotFoundError: no such job, or its model has left the catalogue.
    """
    with (
        Registration(deployment, models=models, job_id=job_id) as me,
        log_fields(worker=me.id),
    ):
        return _run_what_waits(deployment, me, engines, stop, job_id, models, on_progress)


def _run_what_waits(
    deployment: Deployment,
    me: Registration,
    engines: EngineSource,
    stop: StopSignal,
    job_id: str | None,
    models: Collection[str] | None,
    on_progress: Callable[[Progress], None],
) -> RunReport:
    reports: list[ModelReport] = []
    tend(deployment, job_id)
    # A worker's lock is there only while there is work: most looks find none.
    while model := _most_urgent_model(deployment, job_id, models):
        stop.check()
        loaded = me.load(engines, model)
        with present(deployment.settings.workers_dir, me.id):
            session = ModelSession(
                deployment,
                loaded,
                model=model.name,
                worker=me.id,
                job_id=job_id,
                on_progress=on_progress,
                stop=stop,
            )
            reports.append(session.run())
    return RunReport(models=tuple(reports))


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
    """Validate or finalize one job, if that is what it waits for.

    Raises NotFoundError for an unknown job.
    """
    state = deployment.database.transact(
        partial(jobs.settle, clock=deployment.clock, job_id=job_id)
    )
    if state is not None:
        finalize(deployment, job_id)
    else:
        validate(deployment, job_id)


def work_on(
    deployment: Deployment,
    *,
    engines: EngineSource,
    stop: StopSignal,
    models: Collection[str] | None = None,
    on_report: Callable[[RunReport], None] = lambda report: None,
) -> NoReturn:
    """Run what comes, and look again every poll_seconds when nothing is waiting.

    Raises:
        Interrupted: asked to stop.
        ModelError, NotFoundError: as `run_jobs`.
    """
    with Registration(deployment, models=models) as me, log_fields(worker=me.id):
        logger.info("Worker looks for work on %s", ", ".join(sorted(models or ())) or "any model")
        while True:
            report = _run_what_waits(
                deployment, me, engines, stop, None, models, lambda progress: None
            )
            if report.models:
                on_report(report)
            stop.wait(deployment.settings.poll_seconds)
            stop.check()


def _most_urgent_model(
    deployment: Deployment, job_id: str | None, models: Collection[str] | None
) -> Model | None:
    with deployment.database.read() as session:
        for name in claims.open_models(session, job_id):
            if models is None or name in models:
                return catalogue.resolve(session, name)
    return None
