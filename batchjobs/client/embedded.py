"""Answers from the data of this process's own deployment."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, BinaryIO

from sqlalchemy.orm import Session

from batchjobs import catalogue, wire
from batchjobs.client.base import ModelName, Order
from batchjobs.client.batch import Batch, Page
from batchjobs.closing import Closing
from batchjobs.deployment import Deployment
from batchjobs.files import add_file, get_file, open_file
from batchjobs.forecast import look_ahead
from batchjobs.intake import INPUT_PURPOSE
from batchjobs.models import File, Job
from batchjobs.outlook import NOTHING_AHEAD, Outlook
from batchjobs.queue import claims, jobs, tallies
from batchjobs.retry import retry
from batchjobs.worker.tending import tend

if TYPE_CHECKING:
    from batchjobs.client.schedules import Schedules


class EmbeddedClient(Closing):
    """Closes the deployment."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment

    @property
    def schedules(self) -> Schedules:
        from batchjobs.client.schedules import EmbeddedSchedules

        return EmbeddedSchedules(self.deployment)

    def submit(self, stream: BinaryIO, order: Order) -> Batch:
        if order.model is not None:
            with self.deployment.database.read() as session:
                catalogue.resolve(session, order.model)
        file = add_file(
            self.deployment,
            stream,
            filename=order.filename,
            purpose=INPUT_PURPOSE,
            max_bytes=self.deployment.settings.max_input_bytes,
        )
        with self.deployment.database.write() as session:
            job = jobs.create(
                session,
                self.deployment.clock,
                input_file_id=file.id,
                endpoint=order.endpoint,
                completion_window=order.window,
                max_window_hours=self.deployment.settings.max_completion_window_hours,
                model_override=order.model,
                metadata=order.metadata or None,
                seed=order.seed,
                priority=order.priority,
            )
            return Batch(_wire(session, job, {}))

    def batch(self, job_id: str) -> Batch:
        with self.deployment.database.read() as session:
            outlooks = look_ahead(session, self.deployment)
            return Batch(_wire(session, jobs.get(session, job_id), outlooks))

    def wait(self, batch: Batch, *, seconds: float) -> Batch:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, self.deployment.settings.poll_seconds))
            now = self.batch(batch.id)
            if now != batch:
                return now
        return batch

    def advice(self, batch: Batch) -> str | None:
        with self.deployment.database.read() as session:
            if claims.live_shards(session, batch.id):
                return batch.notice
        return f"No worker has this job now. Run it here with: batchjobs resume {batch.id}"

    def page(self, *, limit: int, after: str | None = None) -> Page:
        with self.deployment.database.read() as session:
            found, has_more = jobs.page(session, limit=limit, after=after)
            outlooks = look_ahead(session, self.deployment)
            batches = [_wire(session, job, outlooks) for job in found]
        return Page(wire.list_page(batches, has_more=has_more))

    def cancel(self, job_id: str) -> Batch:
        with self.deployment.database.write() as session:
            jobs.cancel(session, self.deployment.clock, job_id)
        tend(self.deployment, job_id)
        return self.batch(job_id)

    def retry(self, job_id: str) -> Batch:
        return self.batch(retry(self.deployment, job_id).id)

    def open(self, file_id: str) -> BinaryIO:
        return open_file(self.deployment.store, self._file(file_id))

    def locate(self, file_id: str) -> str:
        return self.deployment.store.locate(self._file(file_id).key)

    def models(self) -> list[ModelName]:
        with self.deployment.database.read() as session:
            entries = catalogue.entries(session)
        return [
            ModelName(
                name=entry.model.name,
                aliases=entry.aliases,
                source=entry.model.source,
                revision=entry.model.revision,
            )
            for entry in entries
        ]

    def close(self) -> None:
        self.deployment.close()

    def _file(self, file_id: str) -> File:
        with self.deployment.database.read() as session:
            return get_file(session, file_id)


def _wire(session: Session, job: Job, outlooks: Mapping[str, Outlook]) -> wire.Wire:
    return wire.batch_object(
        job,
        tallies.tally(session, job),
        jobs.errors(session, job.id),
        outlooks.get(job.id, NOTHING_AHEAD),
    )
