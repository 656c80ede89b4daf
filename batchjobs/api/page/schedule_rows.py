"""Schedules as the page shows them: rows of the database → words, tones and local times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

from sqlalchemy.orm import Session

from batchjobs.api.page.words import line
from batchjobs.files import find_file
from batchjobs.queue import slots
from batchjobs.schedules.desk import next_slots
from batchjobs.schedules.states import OPEN, Health, SlotKind, SlotState
from batchjobs.schedules.tables import Schedule, Slot
from batchjobs.schedules.timetable import Timetable

_SLOT_TONES = {
    SlotState.DONE: "good",
    SlotState.FAILED: "bad",
    SlotState.MISSED: "warn",
    SlotState.SKIPPED: "quiet",
    SlotState.REPLACED: "quiet",
}
_HEALTH = {
    Health.OK: ("ok", "good"),
    Health.ALARM: ("alarm", "bad"),
    Health.NO_VERDICT: ("no verdict", "warn"),
    Health.FAILED: ("failed", "bad"),
}
_LOCAL = "%a %Y-%m-%d %H:%M"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTime:
    """A moment by the schedule's own clock."""

    at: datetime
    text: str

    @classmethod
    def of(cls, at: datetime, table: Timetable) -> Self:
        """With the offset from UTC where the same time of day comes twice."""
        local = table.local(at)
        twice = local.replace(fold=1 - local.fold).utcoffset() != local.utcoffset()
        return cls(at=at, text=local.strftime(f"{_LOCAL} %z" if twice else _LOCAL))


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A slot to come; `note` is what is odd about its night."""

    time: LocalTime
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLink:
    """A run of a suite. `word` is its verdict, once the slot has ended with one."""

    suite: str
    run_id: str
    word: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRow:
    slot: Slot
    time: LocalTime
    runs: tuple[RunLink, ...]

    @classmethod
    def of(cls, slot: Slot, table: Timetable) -> Self:
        return cls(
            slot=slot,
            time=LocalTime.of(slot.slot_at, table),
            runs=tuple(
                RunLink(suite=suite_name(path), run_id=run_id, word=slot.words.get(run_id))
                for path, run_id in slot.runs.items()
            ),
        )

    @property
    def word(self) -> str:
        return str(self.slot.state)

    @property
    def tone(self) -> str:
        return _SLOT_TONES.get(self.slot.state, "live")

    @property
    def is_manual(self) -> bool:
        return self.slot.kind == SlotKind.MANUAL

    @property
    def took_seconds(self) -> float | None:
        slot = self.slot
        if slot.started_at is None or slot.ended_at is None:
            return None
        return (slot.ended_at - slot.started_at).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """`due` is empty of a paused one; `last` is its newest slot; `filename` is of the file that it
    runs, if it is still there."""

    schedule: Schedule
    filename: str | None
    due: tuple[Due, ...]
    last: SlotRow | None

    @classmethod
    def read(cls, session: Session, schedule: Schedule, now: datetime) -> Self:
        table = Timetable(schedule.cron, schedule.zone)
        last = slots.last(session, [schedule.id]).get(schedule.id)
        file_id = schedule.file_id
        file = None if file_id is None else find_file(session, file_id, tenant=schedule.tenant)
        return cls(
            schedule=schedule,
            filename=None if file is None else line(file.filename),
            due=tuple(
                Due(time=LocalTime.of(at, table), note=table.oddity(at))
                for at in next_slots(schedule, now)
            ),
            last=None if last is None else SlotRow.of(last, table),
        )

    @property
    def name(self) -> str:
        return self.schedule.name

    @property
    def path(self) -> str:
        """Names are of letters, digits, dots, hyphens and underscores."""
        return f"/schedules/{self.schedule.name}"

    @property
    def is_paused(self) -> bool:
        return self.schedule.paused_at is not None

    @property
    def is_at_work(self) -> bool:
        return self.last is not None and self.last.slot.state in OPEN

    @property
    def word(self) -> str:
        """How it goes, for a person."""
        if self.is_paused:
            return "paused"
        return _HEALTH[self.schedule.health][0] if self.schedule.health else "not run yet"

    @property
    def tone(self) -> str:
        if self.is_paused or not self.schedule.health:
            return "quiet"
        return _HEALTH[self.schedule.health][1]

    @property
    def work(self) -> str:
        """What it runs."""
        if self.schedule.suites:
            return ", ".join(map(suite_name, self.schedule.suites))
        return self.filename or f"{self.schedule.file_id}"

    def slots(self, found: Sequence[Slot]) -> list[SlotRow]:
        table = Timetable(self.schedule.cron, self.schedule.zone)
        return [SlotRow.of(slot, table) for slot in found]


def suite_name(path: str) -> str:
    return Path(path).name
