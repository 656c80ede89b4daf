"""A worker's run: look after what others left, then answer what can be claimed, model by model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import NoReturn

from batchjobs import catalogue
from batchjobs.deployment import Deployment
from batchjobs.errors import ModelError, NotFoundError
from batchjobs.models import Model
from batchjobs.obs.logs import log_fields
from batchjobs.queue import claims
from batchjobs.worker.engines import EngineSource
from batchjobs.worker.model_session import ModelSession
from batchjobs.worker.presence import present
from batchjobs.worker.progress import ModelReport, Progress, RunReport
from batchjobs.worker.registration import Registration
from batchjobs.worker.set_aside import SetAside
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
        return _run_what_waits(deployment, me, engines, stop, job_id, models, on_progress, None)


def _run_what_waits(
    deployment: Deployment,
    me: Registration,
    engines: EngineSource,
    stop: StopSignal,
    job_id: str | None,
    models: Collection[str] | None,
    on_progress: Callable[[Progress], None],
    set_aside: SetAside | None,
) -> RunReport:
    """Without `set_aside`, a model that cannot be used ends the run."""
    reports: list[ModelReport] = []
    tend(deployment, job_id)

    def next_name() -> str | None:
        unusable = () if set_aside is None else set_aside.names
        with deployment.database.read() as session:
            return claims.next_model(session, models=models, job_id=job_id, without=unusable)

    # A worker's lock is there only while there is work: most looks find none.
    while name := next_name():
        stop.check()
        try:
            model = _resolve(deployment, name)
            loaded = me.load(engines, model)
        except (ModelError, NotFoundError) as unusable:
            if set_aside is None:
                raise
            set_aside.add(name)
            if set_aside.has_all(models):
                raise
            logger.error("Lines of this model wait: %s", unusable, extra={"model": name})
            continue
        with present(deployment.settings.workers_dir, me.id):
            session = ModelSession(
                deployment,
                loaded,
                model=model.name,
                worker=me.id,
                job_id=job_id,
                on_progress=on_progress,
                stop=stop,
                is_anothers_turn=lambda name=name: next_name() not in (None, name),  # type: ignore[misc]
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
    """Run what comes, and look again every poll_seconds when nothing is waiting. Lines of a model
    that cannot be used wait, and those of others do not wait for it.

    Raises:
        Interrupted: asked to stop.
        ModelError, NotFoundError: none of `models` can be used.
    """
    set_aside = SetAside()
    with Registration(deployment, models=models) as me, log_fields(worker=me.id):
        logger.info("Worker looks for work on %s", ", ".join(sorted(models or ())) or "any model")
        while True:
            report = _run_what_waits(
                deployment, me, engines, stop, None, models, lambda progress: None, set_aside
            )
            if report.models:
                on_report(report)
            stop.wait(deployment.settings.poll_seconds)
            stop.check()


def _resolve(deployment: Deployment, name: str) -> Model:
    with deployment.database.read() as session:
        return catalogue.resolve(session, name)
