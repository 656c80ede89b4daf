"""What a person asks of schedules, on the command line or over HTTP, and how it is answered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

from sqlalchemy.orm import Session

from batchjobs import catalogue
from batchjobs.deployment import Deployment
from batchjobs.errors import InvalidFileError, NotFoundError
from batchjobs.files import get_file
from batchjobs.intake import FoundProblem, look_over
from batchjobs.models import DEFAULT_TENANT
from batchjobs.queue import schedules, slots
from batchjobs.schedules import firing
from batchjobs.schedules.orders import ScheduleOrder
from batchjobs.schedules.tables import Schedule, Slot
from batchjobs.schedules.timetable import Timetable

NEXT_SHOWN = 3
_SLOT = "slot_"
_ID_DIGITS = 18
"""Fewer than overflow a database's integer."""
Wire = dict[str, Any]


class Desk:
    """Answers are the objects of the API (docs/schedules.md), of one tenant's schedules."""

    def __init__(self, deployment: Deployment, tenant: str = DEFAULT_TENANT) -> None:
        self._deployment = deployment
        self._tenant = tenant

    def add(self, order: ScheduleOrder) -> Wire:
        """Raises UsageError, NotFoundError for the file or its model, InvalidRequestError for its
        endpoint or a line of it, ConflictError for a taken name."""
        hours = self._deployment.settings.max_completion_window_hours
        schedule = order.schedule(tenant=self._tenant, max_window_hours=hours)
        if schedule.file_id is not None:
            self._check_file(schedule.file_id, schedule.endpoint or "", schedule.model)
        with self._deployment.database.write() as session:
            return self._wire(session, schedules.add(session, self._deployment.clock, schedule))

    def _check_file(self, file_id: str, endpoint: str, model: str | None) -> None:
        """A file that cannot run is told of now, and not in the night."""
        with self._deployment.database.read() as session:
            file = get_file(session, file_id, tenant=self._tenant)
            if model is not None:
                catalogue.resolve(session, model)
            names = catalogue.names(session)
        found = look_over(self._deployment, file, names, endpoint=endpoint, model_override=model)
        if found:
            raise _refusal(found)

    def index(self) -> list[Wire]:
        with self._deployment.database.read() as session:
            found = schedules.every(session, tenant=self._tenant)
            return [self._wire(session, each) for each in found]

    def get(self, name: str) -> Wire:
        with self._deployment.database.read() as session:
            return self._wire(session, self._find(session, name))

    def pause(self, name: str) -> Wire:
        return self._change(name, partial(schedules.pause, clock=self._deployment.clock))

    def resume(self, name: str) -> Wire:
        return self._change(name, partial(schedules.resume, clock=self._deployment.clock))

    def remove(self, name: str) -> Wire:
        with self._deployment.database.write() as session:
            schedule = self._find(session, name)
            schedules.remove(session, schedule)
            return {"id": schedule.id, "object": "schedule.deleted", "name": name, "deleted": True}

    def run(self, name: str) -> Wire:
        """The slot of now; the next tick begins it."""
        with self._deployment.database.write() as session:
            schedule = self._find(session, name)
            return slot_wire(firing.run_now(session, self._deployment, schedule))

    def history(self, name: str, *, limit: int, after: str | None = None) -> Wire:
        """A page of slots, the newest first, behind the slot `after`.

        Raises NotFoundError for a slot that is none of this schedule.
        """
        with self._deployment.database.read() as session:
            schedule = self._find(session, name)
            moment = None if after is None else _find_slot(session, schedule, after).slot_at
            found, has_more = slots.history(session, schedule.id, limit=limit, before=moment)
            return {
                "object": "list",
                "data": [slot_wire(slot) for slot in found],
                "has_more": has_more,
            }

    def _find(self, session: Session, name: str) -> Schedule:
        return schedules.get(session, name, tenant=self._tenant)

    def _change(self, name: str, change: partial[None]) -> Wire:
        with self._deployment.database.write() as session:
            change(session, schedule=self._find(session, name))
            return self._wire(session, self._find(session, name))

    def _wire(self, session: Session, schedule: Schedule) -> Wire:
        last = slots.last(session, [schedule.id]).get(schedule.id)
        now = self._deployment.clock.now(session)
        return schedule_wire(schedule, next_slots(schedule, now), last)


def next_slots(schedule: Schedule, now: datetime, count: int = NEXT_SHOWN) -> Sequence[datetime]:
    """None of a paused one."""
    if schedule.paused_at is not None:
        return ()
    return list(islice(Timetable(schedule.cron, schedule.zone).after(now), count))


def schedule_wire(schedule: Schedule, upcoming: Sequence[datetime], last: Slot | None) -> Wire:
    """Moments are seconds of the epoch, as everywhere in the API."""
    table = Timetable(schedule.cron, schedule.zone)
    return {
        "id": schedule.id,
        "object": "schedule",
        "name": schedule.name,
        "cron": schedule.cron,
        "timezone": schedule.zone,
        "suites": schedule.suites,
        "input_file_id": schedule.file_id,
        "endpoint": schedule.endpoint,
        "model": schedule.model,
        "deadline": schedule.deadline,
        "completion_window": schedule.window,
        "priority": schedule.priority,
        "overlap": str(schedule.overlap),
        "catch_up_seconds": schedule.catch_up_seconds,
        "health": None if schedule.health is None else str(schedule.health),
        "created_at": _seconds(schedule.created_at),
        "paused_at": _seconds(schedule.paused_at),
        "next_runs": [
            {
                "at": _seconds(slot),
                "local": table.local(slot).isoformat(timespec="minutes"),
                "note": table.oddity(slot),
            }
            for slot in upcoming
        ],
        "last_run": None if last is None else slot_wire(last),
    }


def slot_wire(slot: Slot) -> Wire:
    return {
        "id": f"{_SLOT}{slot.id}",
        "object": "schedule.slot",
        "slot_at": _seconds(slot.slot_at),
        "kind": str(slot.kind),
        "status": str(slot.state),
        "reason": slot.reason,
        "batch_id": slot.job_id,
        "runs": [
            {"suite": path, "id": run_id, "verdict": slot.words.get(run_id)}
            for path, run_id in slot.runs.items()
        ],
        "deadline": _seconds(slot.deadline_at),
        "started_at": _seconds(slot.started_at),
        "ended_at": _seconds(slot.ended_at),
    }


def _find_slot(session: Session, schedule: Schedule, slot_id: str) -> Slot:
    number = slot_id.removeprefix(_SLOT)
    is_id = slot_id.startswith(_SLOT) and number.isascii() and number.isdigit()
    slot = slots.get(session, int(number)) if is_id and len(number) < _ID_DIGITS else None
    if slot is None or slot.schedule_id != schedule.id:
        raise NotFoundError(f"The schedule '{schedule.name}' has no slot '{slot_id}'.")
    return slot


def _seconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())


def _refusal(found: list[FoundProblem]) -> InvalidFileError:
    """The first of what is wrong with a file, and whether there is more."""
    first, others = found[0], len(found) - 1
    where = "" if first.line is None else f"Line {first.line} of the file: "
    more = f" (and {others:,} other problem{'s' if others > 1 else ''})" if others else ""
    return InvalidFileError(
        f"{where}{first.problem.message}{more}",
        param=first.problem.param,
        code=first.problem.code,
    )
