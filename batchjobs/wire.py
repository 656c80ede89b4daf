"""The public API's shapes: batch, file, list page, and one line of an output or error file.

Where the public API leaves room: `usage` is null until the job has started and then counts what
is finished so far; `model` is null until then and for a file that names several models.
Behind `metadata` come keys of ours: what is to be expected of a batch, all its models, and what
engines computed it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from batchjobs.errors import BatchJobsError
from batchjobs.models import File, Job, JobError, Model
from batchjobs.outlook import NOTHING_AHEAD, Outlook
from batchjobs.queue.tallies import Tally
from batchjobs.states import JobState

Wire = dict[str, Any]

RESTLESS = ("eta",)
"""Keys of the batch object whose change is no news of the batch."""

_RUNNING = (JobState.VALIDATING, JobState.IN_PROGRESS)


def batch_object(
    job: Job,
    tally: Tally,
    errors: Sequence[JobError],
    outlook: Outlook = NOTHING_AHEAD,
) -> Wire:
    """The batch object of `job`; `errors` are what intake found, in the order to show.

    `outlook` may be of a moment ago: of a job that does not run any more it says nothing.
    """
    ahead = outlook if job.status in _RUNNING else NOTHING_AHEAD
    return {
        "id": job.id,
        "object": "batch",
        "endpoint": job.endpoint,
        "model": _only_model(job),
        "errors": _error_list(errors),
        "input_file_id": job.input_file_id,
        "completion_window": job.completion_window,
        "status": str(job.status),
        "output_file_id": job.output_file_id,
        "error_file_id": job.error_file_id,
        "created_at": _seconds(job.created_at),
        "in_progress_at": _seconds(job.in_progress_at),
        "expires_at": _seconds(job.expires_at),
        "finalizing_at": _seconds(job.finalizing_at),
        "completed_at": _seconds(job.completed_at),
        "failed_at": _seconds(job.failed_at),
        "expired_at": _seconds(job.expired_at),
        "cancelling_at": _seconds(job.cancelling_at),
        "cancelled_at": _seconds(job.cancelled_at),
        "request_counts": {
            "total": job.total_lines,
            "completed": tally.completed,
            "failed": tally.failed,
        },
        "usage": None if job.in_progress_at is None else _usage(tally),
        "metadata": job.job_metadata,
        "deadline": _seconds(job.expires_at),
        "eta": None if ahead.eta is None else math.ceil(ahead.eta.timestamp()),
        "at_risk": ahead.at_risk,
        "notice": ahead.notice,
        "models": list(job.models or ()),
        "cached_tokens": tally.cached_tokens,
        "priority": job.priority,
        "system_fingerprints": job.system_fingerprints,
    }


def file_object(file: File) -> Wire:
    """The file object of `file`. It is `processed` at once: clients wait for that word."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": _seconds(file.created_at),
        "expires_at": _seconds(file.expires_at),
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def deleted(name: str, kind: str) -> Wire:
    """What is left to say of a deleted object; `kind` is what its `object` was."""
    return {"id": name, "object": kind, "deleted": True}


def model_object(name: str, model: Model) -> Wire:
    """The model object of `model` under one of its names; `root`, as vLLM has it, is the first."""
    return {
        "id": name,
        "object": "model",
        "created": _seconds(model.created_at),
        "owned_by": "batchjobs",
        "root": model.name,
    }


def list_page(data: Sequence[Wire], *, has_more: bool) -> Wire:
    """One page of batch or file objects; the cursor of the next page is `last_id`."""
    return {
        "object": "list",
        "data": list(data),
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }


def success_line(custom_id: str, digest: str, body: Wire) -> Wire:
    """A line of the output file. `digest` is the line's `ids.line_digest`."""
    return _answered_line(custom_id, digest, 200, body)


def failure_line(custom_id: str, digest: str, error: BatchJobsError) -> Wire:
    """A line of the error file for a request that was answered with an HTTP error."""
    return _answered_line(custom_id, digest, error.status_code, error.wire())


def unrun_line(custom_id: str, digest: str, code: str, message: str) -> Wire:
    """A line of the error file for a request that was never answered (`batch_expired`, …)."""
    return {
        "id": f"batch_req_{digest}",
        "custom_id": custom_id,
        "response": None,
        "error": {"code": code, "message": message},
    }


def _answered_line(custom_id: str, digest: str, status_code: int, body: Wire) -> Wire:
    return {
        "id": f"batch_req_{digest}",
        "custom_id": custom_id,
        "response": {"status_code": status_code, "request_id": f"req_{digest}", "body": body},
        "error": None,
    }


def _only_model(job: Job) -> str | None:
    names = list(job.models or ())
    return names[0] if len(names) == 1 else None


def _error_list(errors: Sequence[JobError]) -> Wire | None:
    if not errors:
        return None
    data = [
        {"code": error.code, "line": error.line, "message": error.message, "param": error.param}
        for error in errors
    ]
    return {"object": "list", "data": data}


def _usage(tally: Tally) -> Wire:
    """The sum of what the lines say: none says that it found its prompt computed, as that depends
    on the company it was in. What was spared is `cached_tokens` of the batch, beside the usage."""
    return {
        "input_tokens": tally.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": tally.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": tally.reasoning_tokens},
        "total_tokens": tally.prompt_tokens + tally.completion_tokens,
    }


def _seconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())
