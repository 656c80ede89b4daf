"""What a person may ask of a schedule, checked before there is one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from batchjobs.errors import UsageError
from batchjobs.ids import new_schedule_id
from batchjobs.queue.terms import MAX_PRIORITY, parse_window
from batchjobs.schedules.states import Overlap
from batchjobs.schedules.tables import Schedule
from batchjobs.schedules.timetable import Timetable, read_clock

DEFAULT_CATCH_UP = "6h"
MAX_CATCH_UP = timedelta(days=366)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SPAN = re.compile(r"(\d{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOrder:
    """Either `suites`, paths on this machine, or a file that is stored already."""

    name: str
    cron: str
    zone: str = "UTC"
    suites: Sequence[str] = ()
    file_id: str | None = None
    endpoint: str | None = None
    model: str | None = None
    deadline: str | None = None
    """HH:MM by the zone's clock."""
    window: str = "24h"
    priority: int = 0
    overlap: Overlap = Overlap.SKIP
    catch_up: str = DEFAULT_CATCH_UP

    def schedule(self, *, tenant: str, max_window_hours: int) -> Schedule:
        """Raises UsageError, or InvalidRequestError for the window."""
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                "A schedule's name has 1 to 64 letters, digits, dots, hyphens and underscores, and"
                f" begins with a letter or digit, but {self.name!r} does not.",
                param="name",
            )
        if bool(self.suites) == (self.file_id is not None):
            raise UsageError("A schedule has either suites or a file of requests: give one.")
        if not -MAX_PRIORITY <= self.priority <= MAX_PRIORITY:
            raise UsageError(f"The priority is none of -{MAX_PRIORITY} to {MAX_PRIORITY}.")
        table = Timetable.read(self.cron, self.zone)
        parse_window(self.window, max_window_hours)
        return Schedule(
            id=new_schedule_id(),
            name=self.name,
            tenant=tenant,
            cron=table.cron,
            zone=table.zone,
            suites=list(self.suites) or None,
            file_id=self.file_id,
            endpoint=self.endpoint,
            model=self.model,
            deadline=None if self.deadline is None else read_clock(self.deadline),
            window=self.window,
            priority=self.priority,
            overlap=self.overlap,
            catch_up_seconds=int(read_span(self.catch_up).total_seconds()),
        )


def read_span(text: str) -> timedelta:
    """ "90m", "6h" or "2d". Raises UsageError."""
    match = _SPAN.fullmatch(text)
    span = timedelta(seconds=int(match[1]) * _SECONDS[match[2]]) if match else None
    if span is None or span > MAX_CATCH_UP:
        raise UsageError(
            f"{text!r} is no span of time: expected a number with s, m, h or d, such as 6h, of at"
            " most 366 days.",
            param="catch_up",
        )
    return span
