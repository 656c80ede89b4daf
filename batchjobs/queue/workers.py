"""Workers: which processes look for work, as far as anyone has heard of them lately.

A row is a report. Whether a shard is held is told by its lease alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from batchjobs.clock import Clock
from batchjobs.models import Worker
from batchjobs.queue import samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What of a worker stays as it is. `models` are those it serves, None any; with a `job_id` it
    works on that job only."""

    id: str
    host: str
    pid: int
    models: tuple[str, ...] | None
    job_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What of a worker changes. Sequences are those of the last step."""

    loaded_model: str | None = None
    tokens_per_second: float | None = None
    running: int = 0
    waiting: int = 0
    kv_cache_usage: float = 0.0


def report(
    session: Session,
    clock: Clock,
    identity: Identity,
    condition: Condition,
    *,
    tokens: int = 0,
) -> None:
    """The worker lives, and this is how it is; also says so of one that was taken for dead.

    `tokens` are those that it computed of its loaded model since the last report.
    """
    now = clock.now(session)
    if condition.loaded_model is not None:
        samples.add(
            session, now, worker_id=identity.id, model=condition.loaded_model, tokens=tokens
        )
    seen = session.scalars(
        update(Worker)
        .where(Worker.id == identity.id)
        .values(**asdict(condition), seen_at=now)
        .returning(Worker.id)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    if seen is None:
        models = None if identity.models is None else list(identity.models)
        facts = {**asdict(identity), **asdict(condition), "models": models}
        session.add(Worker(**facts, started_at=now, seen_at=now))
        session.flush()


def leave(session: Session, worker_id: str) -> None:
    """The worker ends."""
    session.execute(delete(Worker).where(Worker.id == worker_id))


def live(session: Session, clock: Clock, *, lease_seconds: float) -> Sequence[Worker]:
    """The workers that were heard of within a lease, the longest at work first."""
    since = clock.now(session) - timedelta(seconds=lease_seconds)
    return session.scalars(
        select(Worker).where(Worker.seen_at > since).order_by(Worker.started_at, Worker.id)
    ).all()


def remove_dead(session: Session, clock: Clock, *, lease_seconds: float) -> list[str]:
    """Forget the workers that were not heard of for a lease. Their ids."""
    until = clock.now(session) - timedelta(seconds=lease_seconds)
    return list(
        session.scalars(
            delete(Worker)
            .where(Worker.seen_at <= until)
            .returning(Worker.id)
            .execution_options(synchronize_session=False)
        )
    )
