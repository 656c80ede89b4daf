"""What workers computed, minute by minute, over the last hour.

A minute in which a worker computes nothing has no row, so that there are at most as many rows as
workers have minutes of work in an hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from batchjobs.clock import Clock
from batchjobs.models import Sample

MINUTES = 60
"""How far back samples are kept."""
SECONDS_PER_MINUTE = 60
MAX_MODEL_CHARS = 255
MIN_SECONDS = 10.0
"""In less, not every worker has reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Tokens by model, for each of the last `MINUTES` minutes; the last of them still runs."""

    first_minute: int
    seconds_into_last: float
    tokens: Mapping[str, tuple[int, ...]]

    def rates(self, model: str) -> list[float | None]:
        """Tokens a second in each of the minutes; None of the last while it is too young."""
        *whole, last = self.tokens[model]
        so_far = self.seconds_into_last
        return [
            *(count / SECONDS_PER_MINUTE for count in whole),
            last / so_far if so_far >= MIN_SECONDS else None,
        ]


def add(session: Session, now: datetime, *, worker_id: str, model: str, tokens: int) -> None:
    """Count `tokens` for the minute of `now`; the first of a minute drops what is too old."""
    if tokens <= 0:
        return
    minute = _minute(now)
    name = model[:MAX_MODEL_CHARS]
    known = session.scalars(
        update(Sample)
        .where(Sample.minute == minute, Sample.worker_id == worker_id, Sample.model == name)
        .values(tokens=Sample.tokens + tokens)
        .returning(Sample.minute)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    if known is None:
        session.add(Sample(minute=minute, worker_id=worker_id, model=name, tokens=tokens))
        session.flush()
        session.execute(delete(Sample).where(Sample.minute <= minute - MINUTES))


def history(session: Session, clock: Clock) -> History:
    """Of all workers together, those that have ended too."""
    now = clock.now(session)
    first = _minute(now) - MINUTES + 1
    counts: dict[str, list[int]] = {}
    for model, minute, tokens in session.execute(
        select(Sample.model, Sample.minute, func.sum(Sample.tokens))
        .where(Sample.minute >= first, Sample.minute < first + MINUTES)
        .group_by(Sample.model, Sample.minute)
        .order_by(Sample.model)
    ):
        counts.setdefault(model, [0] * MINUTES)[minute - first] = int(tokens)
    return History(
        first_minute=first,
        seconds_into_last=now.timestamp() % SECONDS_PER_MINUTE,
        tokens={model: tuple(minutes) for model, minutes in counts.items()},
    )


def _minute(moment: datetime) -> int:
    return int(moment.timestamp()) // SECONDS_PER_MINUTE
