"""How much there is to do, in numbers for whoever watches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from batchjobs.models import Job, Shard
from batchjobs.states import TERMINAL, JobState, ShardState


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """Jobs by status. Lines are those of whole shards, by the model that they are for."""

    jobs: Mapping[str, int]
    queued_lines: Mapping[str, int]
    running_lines: Mapping[str, int]
    nearest_deadline: datetime | None
    """When the first of the jobs that have not ended expires."""


def take(session: Session) -> Census:
    jobs = {str(state): 0 for state in JobState}
    for status, count in session.execute(select(Job.status, func.count()).group_by(Job.status)):
        jobs[str(status)] = count
    return Census(
        jobs=jobs,
        queued_lines=_lines(session, ShardState.QUEUED),
        running_lines=_lines(session, ShardState.RUNNING),
        nearest_deadline=session.scalar(
            select(Job.expires_at)
            .where(Job.status.not_in(TERMINAL))
            .order_by(Job.expires_at)
            .limit(1)
        ),
    )


def _lines(session: Session, state: ShardState) -> dict[str, int]:
    lines = session.execute(
        select(Shard.model, func.sum(Shard.line_count))
        .where(Shard.state == state)
        .group_by(Shard.model)
        .order_by(Shard.model)
    )
    return {model: int(count) for model, count in lines}
