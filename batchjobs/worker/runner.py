"""A worker's run: look after what others left, then answer what can be claimed, model by model."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NoReturn

from batchjobs import catalogue
from batchjobs.deployment import Deployment
from batchjobs.finalize import finalize
from batchjobs.intake import validate
from batchjobs.models import Model
from batchjobs.queue import claims, jobs
from batchjobs.states import JobState
from batchjobs.worker.engines import EngineSource
from batchjobs.worker.model_session import ModelSession
from batchjobs.worker.presence import present, release_dead
from batchjobs.worker.progress import ModelReport, Progress, RunReport
from batchjobs.worker.stop import StopSignal


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
    reports: list[ModelReport] = []
    with present(deployment.settings.workers_dir) as worker:
        tend(deployment, job_id)
        while model := _most_urgent_model(deployment, job_id, models):
            stop.check()
            session = ModelSession(
                deployment,
                engines.load(model),
                model=model.name,
                worker=worker,
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
    clock = deployment.clock
    with deployment.database.write() as session:
        release_dead(session, deployment.settings.workers_dir)
        claims.rescue(session, clock)
        jobs.expire_due(session, clock)
        unsettled = [job_id] if job_id is not None else jobs.unsettled(session)
    for unsettled_id in unsettled:
        with deployment.database.write() as session:
            job = jobs.get(session, unsettled_id)
            state = jobs.settle(session, clock, unsettled_id)
        if job.status == JobState.VALIDATING:
            validate(deployment, unsettled_id)
        elif state is not None:
            finalize(deployment, unsettled_id)


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
    while True:
        report = run_jobs(deployment, engines=engines, stop=stop, models=models)
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
