"""What is left of the jobs that have not ended: four queries, none of which looks at a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from batchjobs.clock import Clock
from batchjobs.models import Job, Part, Shard
from batchjobs.outlook import Habit, LiveWorker, OpenJob, Share, estimate_remaining_tokens
from batchjobs.queue import workers
from batchjobs.queue.order import MOST_URGENT_FIRST
from batchjobs.queue.tallies import SUMS, Tally, final, summed
from batchjobs.states import JobState

RECENT_JOBS = 20
"""How many completed jobs are looked at for what requests to a model take."""

_OPEN = (JobState.VALIDATING, JobState.IN_PROGRESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Open jobs in the order in which they are claimed, and who is there to run them."""

    jobs: tuple[OpenJob, ...]
    workers: tuple[LiveWorker, ...]
    now: datetime
    done_tokens: Mapping[str, int]
    """Of all open jobs: prompt and completion tokens of the lines answered so far."""


def take(session: Session, clock: Clock, *, lease_seconds: float) -> Backlog:
    done = _done(session)
    habits = _habits(session, done)
    jobs: dict[str, OpenJob] = {}
    for job_id, created_at, expires_at, total_lines, total_bytes, model, lines in session.execute(
        _shares()
    ):
        known = jobs.get(job_id) or OpenJob(id=job_id, created_at=created_at, expires_at=expires_at)
        if model is not None:
            share = _share(
                model,
                lines=int(lines),
                size=total_bytes * int(lines) / total_lines,
                done=done.get((job_id, model), Tally()),
                habit=habits.get(model),
            )
            known = replace(known, shares=(*known.shares, share))
        jobs[job_id] = known
    return Backlog(
        jobs=tuple(jobs.values()),
        workers=tuple(_live_workers(session, clock, lease_seconds)),
        now=clock.now(session),
        done_tokens=_done_tokens(jobs, done),
    )


def _done_tokens(
    jobs: Mapping[str, OpenJob], done: Mapping[tuple[str, str], Tally]
) -> dict[str, int]:
    tokens = dict.fromkeys(jobs, 0)
    for (job_id, _), tally in done.items():
        if job_id in tokens:
            tokens[job_id] += tally.prompt_tokens + tally.completion_tokens
    return tokens


def _shares() -> Select[str, datetime, datetime, int, int, str, int]:
    """A row for each open job and model of it; without a model before it is validated."""
    return (
        select(
            Job.id,
            Job.created_at,
            Job.expires_at,
            Job.total_lines,
            Job.total_bytes,
            Shard.model,
            func.sum(Shard.line_count).label("lines"),
        )
        .outerjoin(Shard, Shard.job_id == Job.id)
        .where(Job.status.in_(_OPEN))
        .group_by(Job.id, Shard.model)
        .order_by(*MOST_URGENT_FIRST, Shard.model)
    )


def _share(model: str, *, lines: int, size: float, done: Tally, habit: Habit | None) -> Share:
    """`size` is what its bytes come to if those of the job are spread evenly over its lines."""
    return Share(
        model=model,
        lines=lines - done.completed - done.failed,
        tokens=estimate_remaining_tokens(done, total_lines=lines, total_bytes=size, habit=habit),
    )


def _done(session: Session) -> dict[tuple[str, str], Tally]:
    """What has come of the jobs in progress, by job and model."""
    rows = session.execute(
        select(Part.job_id, Shard.model, *SUMS)
        .join(Shard, Shard.id == Part.shard_id)
        .join(Job, Job.id == Part.job_id)
        .where(Job.status == JobState.IN_PROGRESS)
        .group_by(Part.job_id, Shard.model)
    )
    return {(job_id, model): summed(sums) for job_id, model, *sums in rows}


def _habits(session: Session, done: dict[tuple[str, str], Tally]) -> dict[str, Habit]:
    """Of jobs that were completed lately or are in progress and have one model, by model."""
    known: dict[str, Tally] = {}
    for (_, model), tally in done.items():
        known[model] = known.get(model, Tally()) + tally
    recent = session.scalars(
        select(Job)
        .where(Job.status == JobState.COMPLETED)
        .order_by(Job.created_at.desc(), Job.id.desc())
        .limit(RECENT_JOBS)
    )
    for job in recent:
        if len(models := set(job.models.values())) == 1:
            model = models.pop()
            known[model] = known.get(model, Tally()) + final(job)
    return {model: _habit(tally) for model, tally in known.items() if tally.prompt_tokens}


def _habit(tally: Tally) -> Habit:
    return Habit(
        prompt_tokens_per_byte=tally.prompt_tokens / tally.input_bytes,
        completion_tokens_per_line=tally.completion_tokens / (tally.completed + tally.failed),
    )


def _live_workers(session: Session, clock: Clock, lease_seconds: float) -> Iterator[LiveWorker]:
    for worker in workers.live(session, clock, lease_seconds=lease_seconds):
        yield LiveWorker(
            models=None if worker.models is None else frozenset(worker.models),
            job_id=worker.job_id,
            loaded_model=worker.loaded_model,
            tokens_per_second=worker.tokens_per_second,
        )
