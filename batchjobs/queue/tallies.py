"""What has come of jobs, in numbers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from batchjobs.models import Job, Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What has come of a job's lines so far; `input_bytes` are those of the answered lines."""

    completed: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    input_bytes: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            **{
                field.name: getattr(self, field.name) + getattr(other, field.name)
                for field in fields(Tally)
            }
        )


_TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")

SUMS = (
    func.sum(Part.completed_lines),
    func.sum(Part.failed_lines),
    *(func.sum(getattr(Part, name)) for name in _TOKENS),
    func.sum(Part.input_bytes),
)
"""Of committed parts, for `summed`."""


def tally(session: Session, job: Job) -> Tally:
    """Sums over the committed parts, or the final numbers of a published job."""
    return tallies(session, [job])[job.id]


def tallies(session: Session, jobs: Collection[Job]) -> dict[str, Tally]:
    """The same of several jobs, by their ids."""
    found = {job.id: final(job) for job in jobs}
    running = [job.id for job in jobs if job.completed_lines is None]
    if running:
        rows = session.execute(
            select(Part.job_id, *SUMS).where(Part.job_id.in_(running)).group_by(Part.job_id)
        )
        found.update((job_id, summed(sums)) for job_id, *sums in rows)
    return found


def final(job: Job) -> Tally:
    """The numbers of a published job; all zeros while it is not."""
    return Tally(
        completed=job.completed_lines or 0,
        failed=job.failed_lines or 0,
        prompt_tokens=job.prompt_tokens or 0,
        cached_tokens=job.cached_tokens or 0,
        completion_tokens=job.completion_tokens or 0,
        reasoning_tokens=job.reasoning_tokens or 0,
        input_bytes=0 if job.completed_lines is None else job.total_bytes,
    )


def summed(sums: Sequence[int]) -> Tally:
    """The tally of a row of `SUMS`; some databases give their sums as decimals."""
    names = ("completed", "failed", *_TOKENS, "input_bytes")
    return Tally(**dict(zip(names, map(int, sums), strict=True)))
