"""Finalize: from the parts of a job to its output and error files.

Every line of the job ends in exactly one of the two, in input order: results come from the parts,
and a line that was never answered, which only a cancelled or expired job has, from the input. The
numbers must agree before anything is published; publishing is one transaction, so that of two
processes that finalize a job one does, and the other removes what it wrote.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy.orm import Session

from batchjobs.deployment import Deployment
from batchjobs.errors import IntegrityError, ObjectMissingError
from batchjobs.files import FileWriter, add_row, create_file
from batchjobs.ids import line_digest
from batchjobs.jsonl import dump_line
from batchjobs.models import Job, Part
from batchjobs.queue import claims, jobs
from batchjobs.queue.claims import ShardFacts
from batchjobs.queue.jobs import Tally
from batchjobs.shard_lines import read_shard
from batchjobs.states import TERMINAL, JobState, Outcome, ShardState
from batchjobs.store.base import ObjectStore
from batchjobs.store.layout import file_key, job_prefix
from batchjobs.wire import unrun_line

PURPOSE = "batch_output"

_UNRUN = {
    JobState.CANCELLED: (
        "batch_cancelled",
        "This request was not executed because the batch was cancelled.",
    ),
    JobState.EXPIRED: (
        "batch_expired",
        "This request could not be executed before the completion window expired.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """What becomes of a line; `outcome` None was never answered."""

    number: int
    outcome: Outcome | None
    record: dict[str, Any]


def finalize(deployment: Deployment, job_id: str) -> bool:
    """Publish a finalizing or cancelling job, and remove its parts. True if this call did.

    Safe to call again, at any time and from two processes at once; for a job in another state it
    does nothing but remove what a crash has left.

    Raises:
        NotFoundError: no such job.
        IntegrityError: parts are missing, damaged or do not add up; nothing is published.
        StoreError: the store fails; nothing is published.
    """
    with deployment.database.write() as session:
        jobs.close_shards(session, job_id)
        job = jobs.get(session, job_id)
    ending = JobState.CANCELLED if job.status == JobState.CANCELLING else job.ending
    if job.status in TERMINAL:
        _remove_parts(deployment, job_id)
    if job.status not in (JobState.FINALIZING, JobState.CANCELLING) or ending is None:
        return False
    try:
        published = _Publication(deployment, job, ending).run()
    except ObjectMissingError as missing:
        if _is_ended(deployment, job_id):
            return False  # the process that was first has removed the parts
        raise IntegrityError(f"Results of {job_id} are lost: {missing}") from missing
    if published:
        _remove_parts(deployment, job_id)
    return published
