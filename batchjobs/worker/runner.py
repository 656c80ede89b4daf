"""A worker's run: look after what others left, then answer what can be claimed, model by model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import NoReturn

from batchjobs import catalogue
from batchjobs.deployment import Deployment
from batchjobs.models import Model
from batchjobs.obs.logs import log_fields
from batchjobs.queue import claims
from batchjobs.worker.engines import EngineSource
from batchjobs.worker.model_session import ModelSession
from batchjobs.worker.presence import present
from batchjobs.worker.progress import ModelReport, Progress, RunReport
from batchjobs.worker.registration import Registration
from batchjobs.worker.stop import StopSignal
from batchjobs.worker.tending import tend

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
                is_anothers_turn=lambda name=model.name: (  # type: ignore[misc]
                    _most_urgent_name(deployment, job_id, models) not in (None, name)
                ),
            )
            reports.append(session.run())
    return RunReport(models=tuple(reports))


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
    name = _most_urgent_name(deployment, job_id, models)
    if name is None:
        return None
    with deployment.database.read() as session:
        return catalogue.resolve(session, name)


def _most_urgent_name(
    deployment: Deployment, job_id: str | None, models: Collection[str] | None
) -> str | None:
    with deployment.database.read() as session:
        return claims.next_model(session, models=models, job_id=job_id)
