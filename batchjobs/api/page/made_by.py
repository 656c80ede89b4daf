"""What a job is of: a schedule's slot, or a run of an eval suite."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from batchjobs.api.page.schedule_rows import LocalTime
from batchjobs.api.page.visitor import Visitor
from batchjobs.evals import runs
from batchjobs.evals.tables import EvalRun
from batchjobs.models import Job
from batchjobs.queue import schedules, slots
from batchjobs.schedules.tables import Schedule
from batchjobs.schedules.timetable import Timetable


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeBy:
    """None of both for a job that a person has sent. `slot` is by the schedule's clock."""

    schedule: Schedule | None = None
    slot: LocalTime | None = None
    run: EvalRun | None = None


def made_by(session: Session, job: Job, visitor: Visitor) -> MadeBy:
    slot = slots.of_job(session, job.id)
    schedule = None if slot is None else schedules.of_id(session, slot.schedule_id)
    if slot is not None and schedule is not None:
        table = Timetable(schedule.cron, schedule.zone)
        return MadeBy(schedule=schedule, slot=LocalTime.of(slot.slot_at, table))
    return MadeBy(run=runs.of_job(session, job) if visitor.is_operator else None)
