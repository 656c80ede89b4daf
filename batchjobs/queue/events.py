"""Events and deliveries: written with what happens, handed out to one sender at a time.

| when a process dies | then |
|---|---|
| before the transaction of the change ends | neither the change nor its event has happened |
| before the event is routed | the next caretaker routes it |
| while it sends | the delivery is due again after `SENDING_SECONDS`, under the same event id |

So an event is told at least once, and its id tells a receiver what it has heard before.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from batchjobs.clock import Clock
from batchjobs.errors import NotFoundError
from batchjobs.models import DEFAULT_TENANT
from batchjobs.notifications.tables import Channel, Delivery, Event

SENDING_SECONDS = 120
"""Longer than any channel may take."""
KEPT_DAYS = 30
ROUTED_AT_A_TIME = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A delivery under way: what is to be sent, and the number of this attempt, from 1."""

    id: int
    channel: Channel
    attempt: int
    event_id: str
    type: str
    data: Mapping[str, Any]
    created_at: datetime
    tenant: str


def new_event_id() -> str:
    return f"evt_{secrets.token_hex(16)}"


def emit(
    session: Session,
    type: str,
    data: Mapping[str, Any],
    *,
    now: datetime,
    tenant: str = DEFAULT_TENANT,
) -> Event:
    """Part of the caller's transaction."""
    event = Event(
        id=new_event_id(),
        type=type,
        data=dict(data),
        tenant=tenant,
        created_at=now,
        is_routed=False,
    )
    session.add(event)
    session.flush()
    return event


def route(
    session: Session, clock: Clock, channels_for: Callable[[str], Collection[Channel]]
) -> int:
    """Make the deliveries of events that have none yet; how many events."""
    unrouted = session.scalars(
        select(Event).where(~Event.is_routed).order_by(Event.created_at).limit(ROUTED_AT_A_TIME)
    ).all()
    now = clock.now(session)
    for event in unrouted:
        if not _claim_routing(session, event.id):
            continue
        for channel in channels_for(event.type):
            add_delivery(session, event.id, channel, now)
    return len(unrouted)


def add_delivery(session: Session, event_id: str, channel: Channel, due_at: datetime) -> None:
    session.add(Delivery(event_id=event_id, channel=channel, attempts=0, due_at=due_at))
    session.flush()


def take(session: Session, clock: Clock, channels: Collection[Channel]) -> Parcel | None:
    """A delivery by one of these that is due, for the caller alone during `SENDING_SECONDS`."""
    now = clock.now(session)
    for delivery_id in session.scalars(
        select(Delivery.id)
        .where(Delivery.due_at <= now, Delivery.channel.in_(channels))
        .order_by(Delivery.due_at)
        .limit(8)
    ):
        taken = session.execute(
            update(Delivery)
            .where(Delivery.id == delivery_id, Delivery.due_at <= now)
            .values(attempts=Delivery.attempts + 1, due_at=now + timedelta(seconds=SENDING_SECONDS))
        )
        if taken.rowcount == 1:  # type: ignore[attr-defined]  # an UPDATE has one
            return _parcel(session, delivery_id)
    return None


def note_delivered(session: Session, clock: Clock, parcel: Parcel) -> None:
    _note(session, parcel, due_at=None, delivered_at=clock.now(session), error=None)


def note_failed(
    session: Session, clock: Clock, parcel: Parcel, error: str, *, again_in: timedelta | None
) -> None:
    """It is due again after so long, or given up."""
    now = clock.now(session)
    if again_in is None:
        _note(session, parcel, due_at=None, given_up_at=now, error=error)
    else:
        _note(session, parcel, due_at=now + again_in, error=error)


def page(
    session: Session, *, limit: int, is_failed: bool = False
) -> Sequence[tuple[Delivery, Event]]:
    """Deliveries with their events, the newest first; or those only whose last attempt failed."""
    query = (
        select(Delivery, Event)
        .join(Event, Event.id == Delivery.event_id)
        .order_by(Event.created_at.desc(), Delivery.id.desc())
        .limit(limit)
    )
    if is_failed:
        query = query.where(Delivery.delivered_at.is_(None), Delivery.error.is_not(None))
    return [(delivery, event) for delivery, event in session.execute(query)]


def send_again(session: Session, clock: Clock, event_id: str) -> int:
    """Make the event's deliveries due now, delivered ones too; how many. Raises NotFoundError."""
    if session.get(Event, event_id) is None:
        raise NotFoundError(f"There is no event '{event_id}'; see: batchjobs events list")
    changed = session.execute(
        update(Delivery)
        .where(Delivery.event_id == event_id)
        .values(attempts=0, due_at=clock.now(session), delivered_at=None, given_up_at=None)
    )
    return int(changed.rowcount)  # type: ignore[attr-defined]


def is_any_due(session: Session, clock: Clock) -> bool:
    """Whether an event is to be routed, or a delivery to be made."""
    unrouted = select(Event.id).where(~Event.is_routed)
    due = select(Delivery.id).where(Delivery.due_at <= clock.now(session))
    return any(session.scalar(query.limit(1)) is not None for query in (unrouted, due))


def remove_old(session: Session, clock: Clock) -> None:
    """Forget events of more than `KEPT_DAYS` days ago that nothing is waiting for."""
    before = clock.now(session) - timedelta(days=KEPT_DAYS)
    waiting = select(Delivery.event_id).where(Delivery.due_at.is_not(None))
    old = select(Event.id).where(
        Event.created_at < before, Event.is_routed, Event.id.not_in(waiting)
    )
    session.execute(delete(Delivery).where(Delivery.event_id.in_(old)))
    session.execute(
        delete(Event).where(Event.created_at < before, Event.is_routed, Event.id.not_in(waiting))
    )


def _claim_routing(session: Session, event_id: str) -> bool:
    claimed = session.execute(
        update(Event).where(Event.id == event_id, ~Event.is_routed).values(is_routed=True)
    )
    return bool(claimed.rowcount == 1)  # type: ignore[attr-defined]


def _parcel(session: Session, delivery_id: int) -> Parcel:
    query = (
        select(Delivery, Event)
        .join(Event, Event.id == Delivery.event_id)
        .where(Delivery.id == delivery_id)
        .execution_options(populate_existing=True)
    )
    delivery, event = session.execute(query).one()
    return Parcel(
        id=delivery.id,
        channel=delivery.channel,
        attempt=delivery.attempts,
        event_id=event.id,
        type=event.type,
        data=event.data,
        created_at=event.created_at,
        tenant=event.tenant,
    )


def _note(session: Session, parcel: Parcel, **values: Any) -> None:
    """Unless another sender has taken the delivery over meanwhile."""
    session.execute(
        update(Delivery)
        .where(Delivery.id == parcel.id, Delivery.attempts == parcel.attempt)
        .values(**values)
    )
