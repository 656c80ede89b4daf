"""When a schedule is due: cron's slots in a time zone, as moments in UTC.

Slots are computed by cronsim, with Debian cron's rules for the nights on which clocks change:

| the local time of a fixed slot | it runs |
|---|---|
| does not exist (clocks go forward) | once, right after the gap |
| comes twice (clocks go back) | once, the first time |

Slots of every hour or of every few minutes follow the real time through both nights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from batchjobs.errors import UsageError

SAFE_STEP = timedelta(hours=3)
"""Longer than an hour that comes twice."""

_FIELDS = 5
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class Timetable:
    """A cron expression of five fields, and the zone whose clock it goes by."""

    cron: str
    zone: str

    @classmethod
    def read(cls, cron: str, zone: str) -> Timetable:
        """Checks what a person gives. Raises UsageError."""
        if len(cron.split()) != _FIELDS:
            raise UsageError(
                f"{cron!r} is not usable as --cron: expected five fields (minute, hour, day of the"
                ' month, month, day of the week), such as "0 2 * * *".',
                param="cron",
            )
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as unknown:
            raise UsageError(
                f"There is no time zone {zone!r}: expected a name of the IANA database, such as"
                " Asia/Shanghai, Europe/Berlin or UTC.",
                param="timezone",
            ) from unknown
        table = cls(" ".join(cron.split()), zone)
        try:
            next(table.after(datetime.now(UTC)))
        except CronSimError as wrong:
            raise UsageError(f"{cron!r} is not usable as --cron: {wrong}.", param="cron") from wrong
        except StopIteration:
            raise UsageError(
                f"{cron!r} is never due: there is no such day.", param="cron"
            ) from None
        return table

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The slots later than `moment`, the next first."""
        return (slot for slot in self._slots(moment, reverse=False) if slot > moment)

    def missed(self, after: datetime, until: datetime, *, limit: int) -> list[datetime]:
        """Slots later than `after` and not later than `until`: the newest `limit`, newest first."""
        # From a little later, as a slot at `until` itself is due.
        backwards = self._slots(until + timedelta(minutes=1), reverse=True)
        newer = takewhile(lambda slot: slot > after, backwards)
        return list(islice((slot for slot in newer if slot <= until), limit))

    def local(self, slot: datetime) -> datetime:
        return slot.astimezone(ZoneInfo(self.zone))

    def oddity(self, slot: datetime) -> str | None:
        """What a person should know of a slot in a night on which clocks change."""
        wanted = self._fixed_time()
        local = self.local(slot)
        if wanted is None:
            return None
        if (local.hour, local.minute) != wanted:
            hour, minute = wanted
            return f"{hour:02}:{minute:02} does not exist that day"
        later = local.replace(fold=1)
        return "comes twice that day; runs the first time" if _is_other(local, later) else None

    def _slots(self, moment: datetime, *, reverse: bool) -> Iterator[datetime]:
        """From somewhere before the moment on, or backwards from somewhere behind it.

        cronsim goes wrong where it begins in an hour that comes twice (2.8: in the second 01:10 in
        New York it takes 01:30 for still to come); through such an hour it goes right.
        """
        step = SAFE_STEP if reverse else -SAFE_STEP
        local = self.local(moment)
        while _is_other(local, local.replace(fold=1 - local.fold)):
            moment += step
            local = self.local(moment)
        for slot in CronSim(self.cron, local, reverse=reverse):
            yield slot.astimezone(UTC)

    def _fixed_time(self) -> tuple[int, int] | None:
        minute, hour, *_ = self.cron.split()
        return (int(hour), int(minute)) if hour.isdigit() and minute.isdigit() else None


def read_clock(text: str) -> str:
    """A time of day as "HH:MM". Raises UsageError."""
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{text!r} is no time of day: expected HH:MM, such as 07:00.", param="deadline"
        )
    return f"{int(match[1]):02}:{match[2]}"


def deadline_of(slot: datetime, clock: str, zone: str) -> datetime:
    """The first time after the slot at which the zone's clocks show `clock`."""
    hour, minute = clock.split(":")
    return next(Timetable(f"{int(minute)} {int(hour)} * * *", zone).after(slot))


def _is_other(one: datetime, other: datetime) -> bool:
    return one.utcoffset() != other.utcoffset()
