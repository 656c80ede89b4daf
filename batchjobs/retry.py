"""A new job of the lines of an ended one that have no answer: failed, expired or cancelled."""

from __future__ import annotations

import orjson
from sqlalchemy.orm import Session

from batchjobs.deployment import Deployment
from batchjobs.errors import ConflictError
from batchjobs.files import FileWriter, add_row, create_file, get_file, open_file
from batchjobs.ids import line_digest
from batchjobs.intake import INPUT_PURPOSE
from batchjobs.models import File, Job
from batchjobs.queue import jobs
from batchjobs.states import TERMINAL


def retry(deployment: Deployment, job_id: str, *, tenant: str | None = None) -> Job:
    """The new job, of the same tenant and still to be validated; its lines are copied as they were.

    Raises:
        NotFoundError: no such job, or a file of it has been deleted.
        ConflictError: it has not ended, or every line of it has an answer.
    """
    with deployment.database.read() as session:
        job = jobs.get(session, job_id, tenant=tenant)
        if job.status not in TERMINAL:
            raise ConflictError(f"Cannot retry a batch with status '{job.status}'.")
        if job.error_file_id is None:
            raise ConflictError(f"The batch '{job_id}' has no failed lines to retry.")
        input_file = get_file(session, job.input_file_id, tenant=job.tenant)
        error_file = get_file(session, job.error_file_id, tenant=job.tenant)
    wanted = _result_ids(deployment, error_file)
    with create_file(deployment.store) as target:
        _copy_lines(deployment, job, input_file, wanted, target)
    return deployment.database.transact(lambda session: _create(session, deployment, job, target))


def _result_ids(deployment: Deployment, error_file: File) -> set[str]:
    with open_file(deployment.store, error_file) as stream:
        return {orjson.loads(line)["id"] for line in stream}


def _copy_lines(
    deployment: Deployment, job: Job, input_file: File, wanted: set[str], target: FileWriter
) -> None:
    """The lines whose results are `wanted`: a result's id is derived from its line's number."""
    with open_file(deployment.store, input_file) as stream:
        for number, line in enumerate(stream, 1):
            if f"batch_req_{line_digest(job.id, number)}" in wanted:
                target.write(line if line.endswith(b"\n") else line + b"\n")


def _create(session: Session, deployment: Deployment, job: Job, written: FileWriter) -> Job:
    file = add_row(
        session,
        deployment.clock,
        written,
        filename=f"{job.id}_retry.jsonl",
        purpose=INPUT_PURPOSE,
        tenant=job.tenant,
    )
    return jobs.create(
        session,
        deployment.clock,
        input_file_id=file.id,
        endpoint=job.endpoint,
        completion_window=job.completion_window,
        max_window_hours=deployment.settings.max_completion_window_hours,
        model_override=job.model_override,
        metadata=job.job_metadata,
        seed=job.seed,
        priority=job.priority,
        output_expires_seconds=job.output_expires_seconds,
        tenant=job.tenant,
    )
