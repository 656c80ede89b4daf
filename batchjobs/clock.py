"""Time: aware UTC from one place, so that tests can move it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol

from sqlalchemy import text
from sqlalchemy.orm import Session


class Clock(Protocol):
    """Tells deadlines and leases what time it is; durations use `time.monotonic` instead."""

    def now(self, session: Session) -> datetime: ...


class DatabaseClock:
    """The clock of the database server, so that hosts with wrong clocks agree on leases.

    SQLite lives in this process's host, whose own clock is then the database's.
    """

    def now(self, session: Session) -> datetime:
        if session.get_bind().dialect.name == "sqlite":
            return datetime.now(UTC)
        value: datetime = session.execute(text("SELECT clock_timestamp()")).scalar_one()
        return value.astimezone(UTC)


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, start: datetime) -> None:
        self._now = start

    def now(self, session: Session) -> datetime:
        return self._now

    def advance(self, by: timedelta) -> None:
        self._now += by
