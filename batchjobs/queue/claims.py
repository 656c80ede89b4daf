"""Shards: who works on what, and whose results count.

| promise | kept by |
|---|---|
| a shard has one holder | a claim is one UPDATE of a queued shard; it raises the fence |
| a late writer changes nothing | every write names its fence; a revocation raises it |
| a dead worker's shard runs again | `rescue` after the lease, `release_owner` at once |
| a live worker keeps its shard | the lease is renewed by fence, even late, if nobody took it |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, func, select, update
from sqlalchemy.orm import Session

from batchjobs.clock import Clock
from batchjobs.errors import IntegrityError, LeaseLostError
from batchjobs.models import File, Job, Part, Shard
from batchjobs.queue.order import MOST_URGENT_FIRST
from batchjobs.states import JobState, ShardState

_QUEUED: dict[str, Any] = {"state": ShardState.QUEUED, "owner": None, "lease_until": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What it takes to run a shard.

    The shard's lines are those between the two byte offsets of the object `input_key` whose model
    is `model`: `models` translates the name on the line, `model_override` takes its place. Their
    numbers are in [first_line, last_line]; if `is_planned`, they do not come in that order.
    `created_at`, `expires_at`, `seed` and `priority` are the job's.
    """

    shard_id: int
    job_id: str
    number: int
    endpoint: str
    model: str
    models: Mapping[str, str]
    model_override: str | None
    seed: int
    priority: int
    created_at: datetime
    expires_at: datetime
    input_key: str
    byte_start: int
    byte_end: int
    first_line: int
    last_line: int
    line_count: int
    is_planned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Work):
    """A shard that is ours until its lease ends. `attempt` is 1 for the first try.

    `suspects` are the first and last of the lines that ran apart when the last holder died.
    """

    fence: int
    owner: str
    attempt: int
    suspects: tuple[int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFacts:
    """A part object that is complete in the store. `number` counts the parts of this claim."""

    number: int
    key: str
    sha256: str
    completed_lines: int
    failed_lines: int
    input_bytes: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFacts:
    """Where a shard stands. `parts` are oldest first, whoever wrote them."""

    work: Work
    state: ShardState
    parts: tuple[Part, ...]


def claim_next(
    session: Session,
    clock: Clock,
    *,
    owner: str,
    lease_seconds: float,
    models: Collection[str] | None = None,
    job_id: str | None = None,
) -> Claim | None:
    """The most urgent queued shard, of these models and this job if given; None if there is none.

    First come jobs of which nothing has been claimed yet, with one shard: their first results do
    not wait for other jobs to end. Then the window that closes in an earlier hour, the greater
    priority, the earlier moment, and the order of the plan.
    """
    now = clock.now(session)
    wanted = claim_query(models=models, job_id=job_id).scalar_subquery()
    row = session.execute(
        update(Shard)
        .where(Shard.id == wanted, Shard.state == ShardState.QUEUED)
        .values(
            state=ShardState.RUNNING,
            owner=owner,
            lease_until=now + timedelta(seconds=lease_seconds),
            attempt=Shard.attempt + 1,
            fence=Shard.fence + 1,
        )
        .returning(Shard.id)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    if row is None:
        return None
    shard, job, input_key = session.execute(_described().where(Shard.id == row.id)).one()
    first, last = shard.suspect_first, shard.suspect_last
    return Claim(
        **_work(shard, job, input_key),
        fence=shard.fence,
        owner=owner,
        attempt=shard.attempt,
        suspects=None if first is None or last is None else (first, last),
    )


def claim_query(*, models: Collection[str] | None, job_id: str | None) -> Select[int]:
    """The id of the shard to claim, locked. SQLite drops the lock clause: its writer is alone."""
    urgent = _claimable(models=models, job_id=job_id).limit(1)
    return urgent.with_for_update(of=Shard, skip_locked=True)


def heartbeat(
    session: Session, clock: Clock, claims: Iterable[Claim], lease_seconds: float
) -> list[Claim]:
    """Renew the leases. Returns the claims that are lost: write nothing more for them."""
    until = clock.now(session) + timedelta(seconds=lease_seconds)
    return [claim for claim in claims if not _update_held(session, claim, lease_until=until)]


def commit_part(session: Session, claim: Claim, part: PartFacts) -> None:
    """Make a part count. Saying it twice, as after a lost reply, is fine.

    Raises:
        LeaseLostError: another worker has the shard.
        IntegrityError: this claim has committed another part under the number.
    """
    _require(session, claim, attempt=0)
    known = session.scalar(
        select(Part.sha256).where(
            Part.shard_id == claim.shard_id,
            Part.fence == claim.fence,
            Part.number == part.number,
        )
    )
    if known == part.sha256:
        return
    if known is not None:
        raise IntegrityError(
            f"Part {part.number} of shard {claim.number} of {claim.job_id} was committed before"
            " with other contents."
        )
    session.add(
        Part(job_id=claim.job_id, shard_id=claim.shard_id, fence=claim.fence, **asdict(part))
    )
    session.flush()


def shards(session: Session, job_id: str) -> list[ShardFacts]:
    """All shards of a job in the order of the file, with the parts that count."""
    parts: dict[int, list[Part]] = {}
    for part in session.scalars(
        select(Part).where(Part.job_id == job_id).order_by(Part.fence, Part.number)
    ):
        parts.setdefault(part.shard_id, []).append(part)
    return [
        ShardFacts(
            work=Work(**_work(shard, job, input_key)),
            state=shard.state,
            parts=tuple(parts.get(shard.id, ())),
        )
        for shard, job, input_key in session.execute(
            _described().where(Shard.job_id == job_id).order_by(Shard.number)
        )
    ]


def parts_from(
    session: Session, job_id: str, *, first: int, limit: int, failed: bool
) -> Sequence[Part]:
    """At most `limit` parts of a job in the order they were committed, from id `first` on, that
    have lines which failed, or which did not."""
    lines = Part.failed_lines if failed else Part.completed_lines
    return session.scalars(
        select(Part)
        .where(Part.job_id == job_id, Part.id >= first, lines > 0)
        .order_by(Part.id)
        .limit(limit)
    ).all()


def committed_parts(session: Session, shard_id: int) -> Sequence[Part]:
    """The parts that count, oldest first, whoever wrote them."""
    return session.scalars(
        select(Part).where(Part.shard_id == shard_id).order_by(Part.fence, Part.number)
    ).all()


def suspect(session: Session, claim: Claim, lines: tuple[int, int]) -> None:
    """Note which lines are about to run apart, first and last. Raises LeaseLostError."""
    first, last = lines
    _require(session, claim, suspect_first=first, suspect_last=last)


def finish(session: Session, claim: Claim) -> None:
    """End a shard whose every line has a committed result.

    Raises:
        LeaseLostError: another worker has it.
        IntegrityError: the parts have fewer or more lines than the shard.
    """
    lines = session.scalar(
        select(func.coalesce(func.sum(Part.completed_lines + Part.failed_lines), 0)).where(
            Part.shard_id == claim.shard_id
        )
    )
    _require(session, claim, state=ShardState.DONE, owner=None, lease_until=None)
    if lines != claim.line_count:
        raise IntegrityError(
            f"Shard {claim.number} of {claim.job_id} has {claim.line_count} lines, but its parts"
            f" have results for {lines}."
        )


def release(session: Session, claim: Claim) -> bool:
    """Give the shard back unfinished and uncounted, as at a clean stop. False if it was lost."""
    unburnt = case((Shard.attempt > 0, Shard.attempt - 1), else_=0)
    return _update_held(session, claim, attempt=unburnt, **_QUEUED)


def rescue(session: Session, clock: Clock) -> int:
    """Take back the shards whose lease has ended. Says how many."""
    return _revoke(session, Shard.lease_until < clock.now(session))


def release_owner(session: Session, owner: str) -> int:
    """Take back the shards of a worker that is known to be dead. Says how many."""
    return _revoke(session, Shard.owner == owner)


def owners(session: Session) -> set[str]:
    """The workers that hold a shard."""
    held = select(Shard.owner).where(Shard.state == ShardState.RUNNING, Shard.owner.is_not(None))
    return {owner for owner in session.scalars(held) if owner is not None}


def next_model(
    session: Session,
    *,
    models: Collection[str] | None = None,
    job_id: str | None = None,
    without: Collection[str] = (),
) -> str | None:
    """The model of the shard that `claim_next` would give if there were none of `without`."""
    urgent = _claimable(models=models, job_id=job_id).with_only_columns(Shard.model)
    return session.scalar(urgent.where(Shard.model.not_in(without)).limit(1))


def waiting_models(session: Session) -> list[str]:
    """The models that shards can be claimed of."""
    models = _claimable().with_only_columns(Shard.model).order_by(None).distinct()
    return list(session.scalars(models))


def live_shards(session: Session, job_id: str) -> int:
    """How many shards of the job some worker holds."""
    return (
        session.scalar(
            select(func.count())
            .select_from(Shard)
            .where(Shard.job_id == job_id, Shard.state == ShardState.RUNNING)
        )
        or 0
    )


def _claimable(*, models: Collection[str] | None = None, job_id: str | None = None) -> Select[int]:
    """Ids of the shards that may be claimed, the most urgent first."""
    query = (
        select(Shard.id)
        .join(Job, Job.id == Shard.job_id)
        .where(Shard.state == ShardState.QUEUED, Job.status == JobState.IN_PROGRESS)
        .order_by(
            case((and_(Shard.leads, Shard.fence == 0), 0), else_=1),
            *MOST_URGENT_FIRST,
            Shard.number,
        )
    )
    if models is not None:
        query = query.where(Shard.model.in_(models))
    return query if job_id is None else query.where(Shard.job_id == job_id)


def _work(shard: Shard, job: Job, input_key: str) -> dict[str, Any]:
    return {
        "shard_id": shard.id,
        "job_id": job.id,
        "number": shard.number,
        "endpoint": job.endpoint,
        "model": shard.model,
        "models": job.models,
        "model_override": job.model_override,
        "seed": job.seed,
        "priority": job.priority,
        "created_at": job.created_at,
        "expires_at": job.expires_at,
        "input_key": job.plan_key if shard.is_planned else input_key,
        "byte_start": shard.byte_start,
        "byte_end": shard.byte_end,
        "first_line": shard.first_line,
        "last_line": shard.last_line,
        "line_count": shard.line_count,
        "is_planned": shard.is_planned,
    }


def _described() -> Select[Shard, Job, str]:
    """Rows of (shard, job, key of the input object), as the database has them now."""
    return (
        select(Shard, Job, File.key)
        .join(Job, Job.id == Shard.job_id)
        .join(File, File.id == Job.input_file_id)
        .execution_options(populate_existing=True)
    )


def _require(session: Session, claim: Claim, **values: Any) -> None:
    if not _update_held(session, claim, **values):
        raise LeaseLostError(
            f"Shard {claim.number} of {claim.job_id} is no longer held under fence {claim.fence}."
        )


def _update_held(session: Session, claim: Claim, **values: Any) -> bool:
    """Change the shard if it is still held under the claim's fence."""
    where = (Shard.id == claim.shard_id, Shard.fence == claim.fence)
    return _update_running(session, *where, **values) == 1


def _revoke(session: Session, where: ColumnElement[bool]) -> int:
    return _update_running(session, where, fence=Shard.fence + 1, **_QUEUED)


def _update_running(session: Session, *where: ColumnElement[bool], **values: Any) -> int:
    changed = session.scalars(
        update(Shard)
        .where(Shard.state == ShardState.RUNNING, *where)
        .values(**values)
        .returning(Shard.id)
        .execution_options(synchronize_session=False)
    ).all()
    return len(changed)
