"""The tables of schedules, and of the slots that they have had."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from batchjobs.models import DEFAULT_TENANT, Base, RowId, UserText, UserWord, column_of
from batchjobs.schedules.states import Health, Overlap, SlotKind, SlotState


class Schedule(Base):
    """What is to run, and when. It has either a file or suites.

    | column | meaning |
    |---|---|
    | seen_until | slots up to here have their rows; a new, changed or resumed schedule begins now |
    | file_id, endpoint | of the file that was stored when the schedule was added |
    | suites | paths on the machine that runs them; read anew for every slot |
    """

    __tablename__ = "schedules"
    __table_args__ = (UniqueConstraint("tenant", "name"),)

    id: Mapped[str] = mapped_column(UserWord(64), primary_key=True)
    name: Mapped[str] = mapped_column(UserWord(64))
    tenant: Mapped[str] = mapped_column(UserWord(64), server_default=DEFAULT_TENANT)
    cron: Mapped[str] = mapped_column(UserWord(255))
    zone: Mapped[str] = mapped_column(UserWord(64))
    suites: Mapped[list[str] | None]
    file_id: Mapped[str | None] = mapped_column(UserWord(64))
    endpoint: Mapped[str | None] = mapped_column(UserWord(64))
    model: Mapped[str | None] = mapped_column(UserText)
    """Takes the place of the lines' or the suites'."""
    deadline: Mapped[str | None] = mapped_column(String(5))
    """HH:MM by the zone's clock: the jobs of a slot expire then, the first time after it."""
    window: Mapped[str] = mapped_column(String(16))
    """The completion window of jobs without a deadline."""
    priority: Mapped[int]
    overlap: Mapped[Overlap] = mapped_column(column_of(Overlap))
    catch_up_seconds: Mapped[int]
    """A slot that is found so late still runs, if it is the newest."""
    health: Mapped[Health | None] = mapped_column(column_of(Health))
    seen_until: Mapped[datetime]
    paused_at: Mapped[datetime | None]
    created_at: Mapped[datetime]


class Slot(Base):
    """One due time of a schedule. Its row, which there is once, is what makes it run once.

    `state` moves only in `queue.slots`, as `SLOT_NEXT` allows.
    """

    __tablename__ = "schedule_slots"
    __table_args__ = (
        UniqueConstraint("schedule_id", "slot_at"),
        Index(None, "state"),
        Index(None, "job_id"),
    )

    id: Mapped[int] = mapped_column(RowId, primary_key=True, autoincrement=True)
    schedule_id: Mapped[str] = mapped_column(ForeignKey("schedules.id"))
    slot_at: Mapped[datetime]
    kind: Mapped[SlotKind] = mapped_column(column_of(SlotKind))
    state: Mapped[SlotState] = mapped_column(column_of(SlotState))
    reason: Mapped[str | None] = mapped_column(UserText)
    """Why it did not run, or how it failed."""
    deadline_at: Mapped[datetime | None]
    job_id: Mapped[str | None] = mapped_column(String(64))
    runs: Mapped[dict[str, Any]] = mapped_column(JSON)
    """Of suites: path → id of the run."""
    words: Mapped[dict[str, Any]] = mapped_column(JSON)
    """Of runs that have ended: id → verdict in a word."""
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
