"""Slots: the one place where a slot's row is made, and where its state changes.

| what happens twice | why there is one run |
|---|---|
| two ticks at one moment, on two machines | the row (schedule, slot) is unique: one makes it |
| a restart in the middle of a tick | the row is there, or the slot is still to be seen |
| the local time of a slot comes twice | a slot is a moment in UTC, and cron has it once |
| two processes start the same slot | the change from waiting is an UPDATE that one of them wins |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from batchjobs.clock import Clock
from batchjobs.schedules.states import OPEN, SLOT_NEXT, SlotKind, SlotState
from batchjobs.schedules.tables import Slot


def insert(
    session: Session,
    clock: Clock,
    *,
    schedule_id: str,
    slot_at: datetime,
    kind: SlotKind = SlotKind.CRON,
    state: SlotState = SlotState.WAITING,
    reason: str | None = None,
    deadline_at: datetime | None = None,
) -> int | None:
    """The row's id, or None if this slot has one already."""
    now = clock.now(session)
    dialect = sqlite if session.get_bind().dialect.name == "sqlite" else postgresql
    statement = (
        dialect.insert(Slot)
        .values(
            schedule_id=schedule_id,
            slot_at=slot_at,
            kind=kind,
            state=state,
            reason=reason,
            deadline_at=deadline_at,
            runs={},
            words={},
            created_at=now,
            ended_at=None if state in OPEN else now,
        )
        .on_conflict_do_nothing(index_elements=["schedule_id", "slot_at"])
        .returning(Slot.id)
    )
    made: int | None = session.scalar(statement)
    return made


def get(session: Session, slot_id: int) -> Slot | None:
    return session.get(Slot, slot_id, populate_existing=True)


def of_job(session: Session, job_id: str) -> Slot | None:
    """The slot that made a job."""
    return session.scalars(select(Slot).where(Slot.job_id == job_id)).first()


def in_state(session: Session, state: SlotState) -> Sequence[Slot]:
    """The oldest first."""
    return session.scalars(
        select(Slot)
        .where(Slot.state == state)
        .order_by(Slot.slot_at, Slot.id)
        .execution_options(populate_existing=True)
    ).all()


def open_of(session: Session, schedule_id: str) -> Sequence[Slot]:
    """Those of a schedule that wait or run, the oldest first."""
    return session.scalars(
        select(Slot)
        .where(Slot.schedule_id == schedule_id, Slot.state.in_(OPEN))
        .order_by(Slot.slot_at, Slot.id)
        .execution_options(populate_existing=True)
    ).all()


def history(
    session: Session, schedule_id: str, *, limit: int, before: datetime | None = None
) -> tuple[Sequence[Slot], bool]:
    """At most `limit` slots, the newest first, earlier than `before`; and whether more are."""
    query = select(Slot).where(Slot.schedule_id == schedule_id)
    if before is not None:
        query = query.where(Slot.slot_at < before)
    found = session.scalars(query.order_by(Slot.slot_at.desc()).limit(limit + 1)).all()
    return found[:limit], len(found) > limit


def last(session: Session, schedule_ids: Collection[str]) -> dict[str, Slot]:
    """The newest slot of each schedule that has one."""
    found = {}
    for schedule_id in schedule_ids:
        newest, _ = history(session, schedule_id, limit=1)
        if newest:
            found[schedule_id] = newest[0]
    return found


def move(
    session: Session,
    clock: Clock,
    slot_id: int,
    to: SlotState,
    **values: Any,
) -> bool:
    """Whether the slot was in a state that lets it go to `to`, and is there now."""
    now = clock.now(session)
    moment = {"started_at": now} if to == SlotState.RUNNING else {"ended_at": now}
    origins = [state for state, following in SLOT_NEXT.items() if to in following]
    moved = session.execute(
        update(Slot)
        .where(Slot.id == slot_id, Slot.state.in_(origins))
        .values(state=to, **moment, **values)
    )
    return bool(moved.rowcount == 1)  # type: ignore[attr-defined]  # an UPDATE has one


def note_runs(session: Session, slot_id: int, runs: Mapping[str, str]) -> None:
    """What has been started of a slot, though it may not be all yet."""
    session.execute(update(Slot).where(Slot.id == slot_id).values(runs=dict(runs)))
