"""Schedules: their rows, found by the names that their owners gave them.

To one tenant, another's schedule is as unknown as one that never was. Without a `tenant`, a
function sees everyone's.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from batchjobs.clock import Clock
from batchjobs.db import hold_lock
from batchjobs.errors import ConflictError, NotFoundError
from batchjobs.models import DEFAULT_TENANT
from batchjobs.queue import slots
from batchjobs.schedules.states import Health
from batchjobs.schedules.tables import Schedule, Slot


def add(session: Session, clock: Clock, schedule: Schedule) -> Schedule:
    """It begins now: slots of the past are none of its. Raises ConflictError for a taken name."""
    hold_lock(session, f"schedule.{schedule.name}.{schedule.tenant}")
    if _find(session, schedule.name, schedule.tenant) is not None:
        raise ConflictError(
            f"There is a schedule '{schedule.name}' already; give another name, or remove it first:"
            f" batchjobs schedules remove {schedule.name}"
        )
    now = clock.now(session)
    schedule.created_at = schedule.seen_until = now
    session.add(schedule)
    session.flush()
    return schedule


def get(session: Session, name: str, *, tenant: str = DEFAULT_TENANT) -> Schedule:
    """Raises NotFoundError."""
    found = _find(session, name, tenant)
    if found is None:
        raise NotFoundError(f"There is no schedule '{name}'; see: batchjobs schedules list")
    return found


def of_id(session: Session, schedule_id: str) -> Schedule | None:
    return session.get(Schedule, schedule_id)


def every(session: Session, *, tenant: str | None = None) -> Sequence[Schedule]:
    """In the order of their names."""
    query = select(Schedule).order_by(Schedule.name, Schedule.tenant)
    return session.scalars(
        query if tenant is None else query.where(Schedule.tenant == tenant)
    ).all()


def active(session: Session) -> Sequence[Schedule]:
    """Those that are not paused."""
    return session.scalars(
        select(Schedule).where(Schedule.paused_at.is_(None)).order_by(Schedule.id)
    ).all()


def pause(session: Session, clock: Clock, schedule: Schedule) -> None:
    """No slot of it is due any more; what runs goes on. Asking again changes nothing."""
    session.execute(
        update(Schedule)
        .where(Schedule.id == schedule.id, Schedule.paused_at.is_(None))
        .values(paused_at=clock.now(session))
    )


def resume(session: Session, clock: Clock, schedule: Schedule) -> None:
    """From now on: the slots of the pause are nobody's miss."""
    session.execute(
        update(Schedule)
        .where(Schedule.id == schedule.id, Schedule.paused_at.is_not(None))
        .values(paused_at=None, seen_until=clock.now(session))
    )


def remove(session: Session, schedule: Schedule) -> None:
    """With its history. Jobs and runs stay. Raises ConflictError while a slot of it runs."""
    running = slots.open_of(session, schedule.id)
    if running:
        raise ConflictError(
            f"The schedule '{schedule.name}' has a slot that is {running[0].state}: pause it,"
            " and wait or cancel its job."
        )
    session.execute(delete(Slot).where(Slot.schedule_id == schedule.id))
    session.execute(delete(Schedule).where(Schedule.id == schedule.id))


def see(session: Session, schedule: Schedule, until: datetime) -> bool:
    """Whether it was this call that took note of the slots up to `until`."""
    seen = session.execute(
        update(Schedule)
        .where(
            Schedule.id == schedule.id,
            Schedule.seen_until == schedule.seen_until,
            Schedule.paused_at.is_(None),
        )
        .values(seen_until=until)
    )
    return bool(seen.rowcount == 1)  # type: ignore[attr-defined]  # an UPDATE has one


def set_health(session: Session, schedule_id: str, health: Health) -> Health | None:
    """The health it had before."""
    before = session.scalar(
        select(Schedule.health).where(Schedule.id == schedule_id).with_for_update()
    )
    session.execute(update(Schedule).where(Schedule.id == schedule_id).values(health=health))
    return before


def _find(session: Session, name: str, tenant: str) -> Schedule | None:
    return session.scalars(
        select(Schedule)
        .where(Schedule.name == name, Schedule.tenant == tenant)
        .execution_options(populate_existing=True)
    ).first()
