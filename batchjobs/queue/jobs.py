"""Jobs: the one place where a job's status changes.

Every change is an UPDATE that names the states it may start from, so that of two processes that
want to move a job only one does. The caller owns the transaction; what happens in it happens
together or not at all.

To one tenant, another's job is as unknown as one that never was. Without a `tenant`, a function
sees everyone's: for operators and workers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, and_, delete, exists, insert, or_, select, true, update
from sqlalchemy.orm import Session

from batchjobs.clock import Clock
from batchjobs.errors import ConflictError, IntegrityError, NotFoundError
from batchjobs.ids import new_job_id
from batchjobs.models import DEFAULT_TENANT, Job, JobError, Part, Shard
from batchjobs.queue import events
from batchjobs.queue.order import MOST_URGENT_FIRST
from batchjobs.queue.repeats import RequestName
from batchjobs.queue.tallies import Tally
from batchjobs.queue.terms import check_metadata, parse_window
from batchjobs.states import JOB_NEXT, TERMINAL, JobState, ShardState

if TYPE_CHECKING:
    from batchjobs.cutter import PlannedShard
    from batchjobs.intake import FoundProblem

SECONDS_PER_HOUR = 3600
OPEN_SHARDS = (ShardState.QUEUED, ShardState.RUNNING)


def create(
    session: Session,
    clock: Clock,
    *,
    input_file_id: str,
    endpoint: str,
    completion_window: str,
    max_window_hours: int,
    model_override: str | None = None,
    metadata: Mapping[str, object] | None = None,
    seed: int = 0,
    output_expires_seconds: int | None = None,
    priority: int = 0,
    request: RequestName | None = None,
    expires_at: datetime | None = None,
    tenant: str = DEFAULT_TENANT,
) -> Job:
    """A job for intake, which also says if there is no such endpoint or input file. `expires_at`
    is a deadline that is no whole number of hours away.

    Raises:
        InvalidRequestError: the window or the metadata is wrong.
    """
    now = clock.now(session)
    expires_at = expires_at or now + parse_window(completion_window, max_window_hours)
    job = Job(
        id=new_job_id(),
        status=JobState.VALIDATING,
        endpoint=endpoint,
        completion_window=completion_window,
        input_file_id=input_file_id,
        job_metadata=check_metadata(metadata),
        model_override=model_override,
        models={},
        seed=seed,
        output_expires_seconds=output_expires_seconds,
        request_key=None if request is None else request.key,
        request_digest=None if request is None else request.asked,
        tenant=tenant,
        created_at=now,
        expires_at=expires_at,
        priority=priority,
        due_hour=_due_hour(expires_at),
        total_lines=0,
        total_bytes=0,
    )
    session.add(job)
    session.flush()
    return job


def set_deadline(session: Session, job_ids: Collection[str], deadline: datetime) -> None:
    """Of those that have not ended."""
    session.execute(
        update(Job)
        .where(Job.id.in_(job_ids), Job.status.not_in(TERMINAL), Job.expires_at != deadline)
        .values(expires_at=deadline, due_hour=_due_hour(deadline))
        .execution_options(synchronize_session=False)
    )


def get(session: Session, job_id: str, *, tenant: str | None = None) -> Job:
    """Raises NotFoundError."""
    job = session.get(Job, job_id, populate_existing=True)
    if job is None or tenant not in (None, job.tenant):
        raise NotFoundError(f"No batch found with id '{job_id}'.")
    return job


def page(
    session: Session, *, limit: int, after: str | None = None, tenant: str | None = None
) -> tuple[Sequence[Job], bool]:
    """At most `limit` jobs, newest first, that follow the job `after`, and whether more do.

    Raises NotFoundError for an unknown `after`.
    """
    newest_first = (Job.created_at.desc(), Job.id.desc())
    query = select(Job).where(_is_of(tenant)).order_by(*newest_first).limit(limit + 1)
    if after is not None:
        last = get(session, after, tenant=tenant)
        query = query.where(
            or_(
                Job.created_at < last.created_at,
                and_(Job.created_at == last.created_at, Job.id < last.id),
            )
        )
    jobs = session.scalars(query).all()
    return jobs[:limit], len(jobs) > limit > 0


def fail_validation(
    session: Session, clock: Clock, job_id: str, problems: Sequence[FoundProblem]
) -> bool:
    """List what intake found wrong, in the order given. False if the job is not validating."""
    if not _move(session, clock.now(session), JobState.FAILED, Job.id == job_id):
        return False
    rows = [
        {
            "job_id": job_id,
            "number": number,
            "line": found.line,
            "code": found.problem.code,
            "message": found.problem.message,
            "param": found.problem.param,
        }
        for number, found in enumerate(problems)
    ]
    if rows:
        session.execute(insert(JobError), rows)
    return True


def start(
    session: Session,
    clock: Clock,
    job_id: str,
    *,
    shards: Sequence[PlannedShard],
    models: Mapping[str, str],
    total_lines: int,
    total_bytes: int,
    plan_key: str | None = None,
) -> bool:
    """Let workers claim the shards. False, and nothing happens, if the job is not validating.

    Raises IntegrityError if the shards do not add up to `total_lines`.
    """
    planned = sum(shard.line_count for shard in shards)
    if planned != total_lines:
        raise IntegrityError(
            f"The shards of {job_id} have {planned} lines, but the file has {total_lines}."
        )
    values = {
        "models": dict(models),
        "total_lines": total_lines,
        "total_bytes": total_bytes,
        "plan_key": plan_key,
    }
    now = clock.now(session)
    if not _move(session, now, JobState.IN_PROGRESS, Job.id == job_id, values=values):
        return False
    leads = {shard.model: shard.number for shard in reversed(shards)}
    rows = [_shard_row(job_id, shard, leads[shard.model] == shard.number) for shard in shards]
    session.execute(insert(Shard), rows)
    return True


def cancel(session: Session, clock: Clock, job_id: str, *, tenant: str | None = None) -> Job:
    """Claim no more of the job; `finalize` then publishes what is finished.

    Asking again is fine. A job that is finalizing already has its ending and keeps it.

    Raises:
        NotFoundError: no such job.
        ConflictError: it has ended in another way, or is about to.
    """
    theirs = and_(Job.id == job_id, _is_of(tenant))
    _move(session, clock.now(session), JobState.CANCELLING, theirs)
    job = get(session, job_id, tenant=tenant)
    if job.status not in (JobState.CANCELLING, JobState.CANCELLED):
        raise ConflictError(f"Cannot cancel a batch with status '{job.status}'.")
    return job


def cancel_open(session: Session, clock: Clock, job_ids: Collection[str]) -> None:
    """Those of these that may still be cancelled; nothing happens to the others."""
    _move(session, clock.now(session), JobState.CANCELLING, Job.id.in_(job_ids))


def expire_due(session: Session, clock: Clock) -> list[str]:
    """End the jobs whose window has closed; their ids are for `finalize`."""
    now = clock.now(session)
    values = {"ending": JobState.EXPIRED}
    return _move(session, now, JobState.FINALIZING, Job.expires_at <= now, values=values)


def settle(session: Session, clock: Clock, job_id: str) -> JobState | None:
    """The state of a job that is to be validated or can be finalized now; else None.

    Moves a job whose shards are all done to finalizing. A cancelled or expired job waits for the
    shards that still run; `finalize` does not, and takes them away from their workers.
    """
    all_done = ~exists().where(Shard.job_id == Job.id, Shard.state != ShardState.DONE)
    _move(
        session,
        clock.now(session),
        JobState.FINALIZING,
        and_(Job.id == job_id, Job.status == JobState.IN_PROGRESS, all_done),
        values={"ending": JobState.COMPLETED},
    )
    job = get(session, job_id)
    if job.status == JobState.VALIDATING:
        return job.status
    if job.status not in (JobState.FINALIZING, JobState.CANCELLING):
        return None
    running = select(Shard.id).where(Shard.job_id == job_id, Shard.state == ShardState.RUNNING)
    return None if session.scalar(running.limit(1)) is not None else job.status


def unsettled(session: Session) -> Sequence[str]:
    """The jobs that have not ended, the most urgent first."""
    return session.scalars(
        select(Job.id).where(Job.status.not_in(TERMINAL)).order_by(*MOST_URGENT_FIRST)
    ).all()


def close_shards(session: Session, job_id: str) -> int:
    """End the shards of a cancelled or expired job that have no result for every line yet.

    The greater fence makes void whatever their workers would still write. Says how many.
    """
    ending = exists().where(
        Job.id == Shard.job_id,
        or_(
            Job.status == JobState.CANCELLING,
            and_(Job.status == JobState.FINALIZING, Job.ending == JobState.EXPIRED),
        ),
    )
    closed = session.scalars(
        update(Shard)
        .where(Shard.job_id == job_id, Shard.state.in_(OPEN_SHARDS), ending)
        .values(state=ShardState.CLOSED, fence=Shard.fence + 1, owner=None, lease_until=None)
        .returning(Shard.id)
        .execution_options(synchronize_session=False)
    ).all()
    return len(closed)


def ending(job: Job) -> JobState | None:
    """The terminal state that `publish` gives the job; None while it may not yet, or did."""
    if job.status == JobState.CANCELLING:
        return JobState.CANCELLED
    return job.ending if job.status == JobState.FINALIZING else None


def publish(
    session: Session,
    clock: Clock,
    job_id: str,
    *,
    output_file_id: str | None,
    error_file_id: str | None,
    tally: Tally,
    system_fingerprints: Sequence[str] = (),
) -> bool:
    """Give a finalizing or cancelling job its terminal state, files and final counts together,
    with the fingerprints of what computed them, and drop the rows of its parts.

    False, and nothing happens, if it is in no such state: another process was first.
    """
    state = ending(get(session, job_id))
    if state is None:
        return False
    values = {
        "output_file_id": output_file_id,
        "error_file_id": error_file_id,
        "completed_lines": tally.completed,
        "failed_lines": tally.failed,
        "prompt_tokens": tally.prompt_tokens,
        "cached_tokens": tally.cached_tokens,
        "completion_tokens": tally.completion_tokens,
        "reasoning_tokens": tally.reasoning_tokens,
        "system_fingerprints": list(system_fingerprints) or None,
    }
    if not _move(session, clock.now(session), state, Job.id == job_id, values=values):
        return False
    session.execute(delete(Part).where(Part.job_id == job_id))
    return True


def remove(session: Session, job_id: str, *, tenant: str | None = None) -> None:
    """Forget an ended job; its files stay.

    Raises:
        NotFoundError: no such job.
        ConflictError: it has not ended.
    """
    job = get(session, job_id, tenant=tenant)
    if job.status not in TERMINAL:
        raise ConflictError(
            f"Cannot delete a batch with status '{job.status}'. Cancel it, and wait for its end."
        )
    for table in (Part, Shard, JobError):
        session.execute(delete(table).where(table.job_id == job_id))
    session.delete(job)
    session.flush()


def errors(session: Session, job_id: str) -> Sequence[JobError]:
    """What intake found wrong, in the order it was given."""
    return session.scalars(
        select(JobError).where(JobError.job_id == job_id).order_by(JobError.number)
    ).all()


def _is_of(tenant: str | None) -> ColumnElement[bool]:
    return true() if tenant is None else Job.tenant == tenant


def _due_hour(expires_at: datetime) -> int:
    return int(expires_at.timestamp()) // SECONDS_PER_HOUR


def _move(
    session: Session,
    now: datetime,
    to: JobState,
    where: ColumnElement[bool],
    *,
    values: Mapping[str, Any] | None = None,
) -> list[str]:
    """Move the jobs that `where` selects and `JOB_NEXT` lets go to `to`. The ids of those moved.

    An end is an event: who waits for it is told, once.
    """
    origins = [state for state, following in JOB_NEXT.items() if to in following]
    moved = session.execute(
        update(Job)
        .where(where, Job.status.in_(origins))
        .values({"status": to, f"{to}_at": now, **(values or {})})
        .returning(Job.id, Job.tenant)
        .execution_options(synchronize_session=False)
    ).all()
    if to in TERMINAL:
        for job_id, tenant in moved:
            events.emit(session, f"batch.{to}", {"id": job_id}, now=now, tenant=tenant)
    return [job_id for job_id, _ in moved]


def _shard_row(job_id: str, shard: PlannedShard, leads: bool) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "number": shard.number,
        "model": shard.model,
        "first_line": shard.first_line,
        "last_line": shard.last_line,
        "line_count": shard.line_count,
        "byte_start": shard.byte_start,
        "byte_end": shard.byte_end,
        "is_planned": shard.is_planned,
        "leads": leads,
        "state": ShardState.QUEUED,
        "attempt": 0,
        "fence": 0,
    }
