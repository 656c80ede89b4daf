"""This process in the table of workers, for as long as it looks for work.

A thread of its own reports, so that a worker counts as alive while its model loads or a step takes
long. A worker that hangs is the watchdog's affair, and what it holds is its leases'.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Collection
from types import TracebackType
from typing import Self

from batchjobs.deployment import Deployment
from batchjobs.errors import BatchJobsError, DatabaseError
from batchjobs.ids import new_worker_id
from batchjobs.models import Model
from batchjobs.queue import workers
from batchjobs.queue.workers import Condition, Identity
from batchjobs.worker.engines import EngineSource, LoadedModel
from batchjobs.worker.rate import RateMeter
from executor.metrics import EngineMetrics

SAMPLE_SECONDS = 1.0
REPORT_SECONDS = 5.0
"""Or a third of a lease, if that is less."""

logger = logging.getLogger(__name__)


class Registration:
    """A context in which others know of this worker: `models` it serves (None: any), or the one
    job that it works on."""

    def __init__(
        self,
        deployment: Deployment,
        *,
        models: Collection[str] | None = None,
        job_id: str | None = None,
    ) -> None:
        self._deployment = deployment
        self._identity = Identity(
            id=new_worker_id(),
            host=socket.gethostname(),
            pid=os.getpid(),
            models=None if models is None else tuple(sorted(models)),
            job_id=job_id,
        )
        self._report_seconds = min(REPORT_SECONDS, deployment.settings.lease_seconds / 3)
        self._news = threading.Event()
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name="registration", daemon=True)
        self._engine: tuple[str, EngineMetrics] | None = None
        self._rate = RateMeter()
        self._told_tokens = 0

    @property
    def id(self) -> str:
        """Also the owner of the shards that the worker claims."""
        return self._identity.id

    def load(self, engines: EngineSource, model: Model) -> LoadedModel:
        """Load the model, or take it as it is loaded, and let others know. Raises ModelError."""
        began = time.monotonic()
        loaded = engines.load(model)
        engine = (model.name, loaded.engine.metrics)
        if self._engine is None or self._engine[1] is not engine[1]:
            took = time.monotonic() - began
            logger.info("Model loaded in %.1f s", took, extra={"model": model.name})
            self._engine, self._rate = engine, RateMeter()
            self._told_tokens = engine[1].covered_tokens_total
            self._news.set()
        return loaded

    def __enter__(self) -> Self:
        """Raises DatabaseError."""
        self._report(Condition())
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._has_ended = True
        self._news.set()
        self._thread.join(self._deployment.settings.stop_grace_seconds)
        if isinstance(error, DatabaseError):
            return  # it would be waited for once more; the row is removed as that of a dead one
        try:
            self._deployment.database.transact(
                lambda session: workers.leave(session, self._identity.id)
            )
        except BatchJobsError as failed:
            logger.warning("Cannot deregister: %s", failed, extra={"worker": self.id})

    def _run(self) -> None:
        reported, next_report = Condition(), time.monotonic() + self._report_seconds
        while True:
            self._news.wait(SAMPLE_SECONDS)
            self._news.clear()
            if self._has_ended:
                return
            condition = self._sample()
            if time.monotonic() < next_report and not _is_news(condition, reported):
                continue
            try:
                self._report(condition)
            except BatchJobsError as failed:
                logger.warning("Cannot report: %s", failed, extra={"worker": self.id})
            reported, next_report = condition, time.monotonic() + self._report_seconds

    def _sample(self) -> Condition:
        engine, rate = self._engine, self._rate
        if engine is None:
            return Condition()
        model, metrics = engine
        running, waiting = metrics.num_requests_running, metrics.num_requests_waiting
        rate.observe(time.monotonic(), metrics.covered_tokens_total, is_busy=running + waiting > 0)
        return Condition(
            loaded_model=model,
            tokens_per_second=rate.per_second,
            running=running,
            waiting=waiting,
            kv_cache_usage=metrics.kv_cache_usage_perc,
        )

    def _report(self, condition: Condition) -> None:
        engine, told = self._engine, self._told_tokens
        covered = told if engine is None else engine[1].covered_tokens_total
        self._deployment.database.transact(
            lambda session: workers.report(
                session,
                self._deployment.clock,
                self._identity,
                condition,
                tokens=covered - told,
            )
        )
        if engine is self._engine:
            self._told_tokens = max(told, covered)


def _is_news(condition: Condition, reported: Condition) -> bool:
    """Of what changes what others expect."""
    return condition.loaded_model != reported.loaded_model or (
        (condition.tokens_per_second is None) != (reported.tokens_per_second is None)
    )
