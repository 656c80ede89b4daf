"""A tick: which slots are due, what is to be started, and what has ended.

```
cron ─▶ due? ─▶ row of the slot ─▶ waiting ─▶ overlap? ─▶ running ─▶ done, failed
                  │ too old: missed             │ skipped, replaced
```
Whoever ticks, and how often, decides nothing: each step is one transaction, and its rows say
whether it has been done (`queue.slots`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.orm import Session

from batchjobs.deployment import Deployment
from batchjobs.errors import (
    BatchJobsError,
    ConflictError,
    InvalidRequestError,
    ModelError,
    NotFoundError,
)
from batchjobs.queue import jobs, schedules, slots
from batchjobs.schedules import closing
from batchjobs.schedules.states import Overlap, SlotKind, SlotState
from batchjobs.schedules.suites import EvalSuites, Suites
from batchjobs.schedules.tables import Schedule, Slot
from batchjobs.schedules.timetable import Timetable, deadline_of

MAX_RECORDED = 100
"""Missed slots that get a row of their own after a long absence."""
METADATA_SCHEDULE = "schedule"
METADATA_SLOT = "slot"
"""Keys of a job's metadata that say what it is of."""

logger = logging.getLogger(__name__)


def tick(deployment: Deployment, suites: Suites | None = None) -> None:
    """Do all that is to be done now. Safe at any time, and beside other ticks."""
    runner = suites or EvalSuites(deployment)
    with deployment.database.read() as session:
        active = schedules.active(session)
    for schedule in active:
        _attempt(f"schedule {schedule.name}", partial(see, deployment, schedule))
    # Ended ones first: a slot that waits for its predecessor then starts at once.
    for state, step in ((SlotState.RUNNING, _follow), (SlotState.WAITING, _begin)):
        with deployment.database.read() as session:
            found = slots.in_state(session, state)
        for slot in found:
            _attempt(f"slot {slot.id}", partial(step, deployment, runner, slot.id))


def see(deployment: Deployment, schedule: Schedule) -> None:
    """Make the rows of slots that have become due since the last look."""

    def note(session: Session) -> list[Slot]:
        now = deployment.clock.now(session)
        table = Timetable(schedule.cron, schedule.zone)
        due = table.missed(schedule.seen_until, now, limit=MAX_RECORDED)
        if not due or not schedules.see(session, schedule, now):
            return []
        made = [
            _note_due(session, deployment, schedule, slot_at, now, is_newest=number == 0)
            for number, slot_at in enumerate(due)
        ]
        return [slot for slot in made if slot is not None]

    for slot in deployment.database.transact(note):
        state = "is due" if slot.state == SlotState.WAITING else f"was missed ({slot.reason})"
        logger.info("Schedule %s: slot %s %s", schedule.name, slot.slot_at.isoformat(), state)


def run_now(session: Session, deployment: Deployment, schedule: Schedule) -> Slot:
    """A slot of this moment, which a person asks for, also of a paused schedule."""
    now = deployment.clock.now(session)
    made = slots.insert(
        session,
        deployment.clock,
        schedule_id=schedule.id,
        slot_at=now,
        kind=SlotKind.MANUAL,
        deadline_at=_deadline(schedule, now),
    )
    slot = None if made is None else slots.get(session, made)
    if slot is None:
        raise ConflictError(f"The schedule '{schedule.name}' has been asked to run this instant.")
    return slot


def _note_due(
    session: Session,
    deployment: Deployment,
    schedule: Schedule,
    slot_at: datetime,
    now: datetime,
    *,
    is_newest: bool,
) -> Slot | None:
    reason = _why_missed(schedule, slot_at, now, is_newest=is_newest)
    made = slots.insert(
        session,
        deployment.clock,
        schedule_id=schedule.id,
        slot_at=slot_at,
        state=SlotState.WAITING if reason is None else SlotState.MISSED,
        reason=reason,
        deadline_at=_deadline(schedule, slot_at),
    )
    slot = None if made is None else slots.get(session, made)
    if slot is not None and reason is not None:
        closing.tell_missed(session, deployment.clock, schedule, slot)
    return slot


def _why_missed(
    schedule: Schedule, slot_at: datetime, now: datetime, *, is_newest: bool
) -> str | None:
    if not is_newest:
        return "nobody was there when it was due, and a newer one is due"
    late = now - slot_at
    if late > timedelta(seconds=schedule.catch_up_seconds):
        return (
            f"nobody was there until {_duration(late)} after it was due, and its catch-up window"
            f" is {_duration(timedelta(seconds=schedule.catch_up_seconds))}"
        )
    deadline = _deadline(schedule, slot_at)
    if deadline is not None and deadline <= now:
        return "its deadline was past before anybody was there"
    return None


def _deadline(schedule: Schedule, slot_at: datetime) -> datetime | None:
    if schedule.deadline is None:
        return None
    return deadline_of(slot_at, schedule.deadline, schedule.zone)


def _begin(deployment: Deployment, suites: Suites, slot_id: int) -> None:
    """Start a waiting slot, unless another of its schedule is in its way."""
    replaced = deployment.database.transact(partial(_make_way, deployment, slot_id))
    if replaced is None:
        return
    for earlier in replaced:
        _cancel(deployment, suites, earlier)
    with deployment.database.read() as session:
        found = _load(session, slot_id)
    if found is None:
        return
    slot, schedule = found
    if schedule.suites is None:
        deployment.database.transact(partial(_start_job, deployment, slot_id))
    else:
        with deployment.database.alone(f"slot-{slot_id}") as is_alone:
            if is_alone:
                _start_runs(deployment, suites, slot, schedule)


def _make_way(deployment: Deployment, slot_id: int, session: Session) -> list[Slot] | None:
    """The slots that are to be cancelled first; None if the slot is not to start now."""
    found = _load(session, slot_id)
    if found is None:
        return None
    slot, schedule = found
    others = [one for one in slots.open_of(session, schedule.id) if one.id != slot.id]
    earlier = [one for one in others if (one.slot_at, one.id) < (slot.slot_at, slot.id)]
    if not earlier:
        return []
    if schedule.overlap == Overlap.REPLACE:
        reason = f"replaced by the slot of {_moment(slot)}"
        for one in earlier:
            slots.move(session, deployment.clock, one.id, SlotState.REPLACED, reason=reason)
        return earlier
    waits = any(one.state == SlotState.WAITING for one in earlier)
    if schedule.overlap == Overlap.SKIP or waits:
        how = "waits already" if waits else "still runs"
        reason = f"overlap: the slot of {_moment(earlier[-1])} {how}"
        slots.move(session, deployment.clock, slot.id, SlotState.SKIPPED, reason=reason)
        logger.warning("Schedule %s: skipped (%s)", schedule.name, reason)
    return None


def _start_job(deployment: Deployment, slot_id: int, session: Session) -> None:
    """The job and the slot's change happen together or not at all."""
    found = _load(session, slot_id)
    if found is None:
        return
    slot, schedule = found
    assert schedule.file_id is not None
    assert schedule.endpoint is not None
    job = jobs.create(
        session,
        deployment.clock,
        input_file_id=schedule.file_id,
        endpoint=schedule.endpoint,
        completion_window=schedule.window,
        max_window_hours=deployment.settings.max_completion_window_hours,
        model_override=schedule.model,
        metadata={METADATA_SCHEDULE: schedule.name, METADATA_SLOT: slot.slot_at.isoformat()},
        priority=schedule.priority,
        expires_at=slot.deadline_at,
        tenant=schedule.tenant,
    )
    if not slots.move(session, deployment.clock, slot.id, SlotState.RUNNING, job_id=job.id):
        session.delete(job)


def _start_runs(deployment: Deployment, suites: Suites, slot: Slot, schedule: Schedule) -> None:
    """One run of each suite; those that a crash has begun are taken on."""
    night = night_of(schedule, slot)
    runs = dict(slot.runs)
    try:
        for path in schedule.suites or ():
            runs[path] = suites.find(night, path) or suites.start(
                path, model=schedule.model, deadline=slot.deadline_at, night=night
            )
            deployment.database.transact(partial(slots.note_runs, slot_id=slot.id, runs=dict(runs)))
    except (InvalidRequestError, ModelError, OSError) as failed:
        closing.close_failed(deployment, slot.id, f"{path} cannot be run: {failed}")
        return
    deployment.database.transact(
        lambda session: slots.move(session, deployment.clock, slot.id, SlotState.RUNNING)
    )


def night_of(schedule: Schedule, slot: Slot) -> str:
    """What runs that are judged together have in common."""
    return f"{schedule.id}.{int(slot.slot_at.timestamp() * 1000)}"


def schedule_of_night(session: Session, night: str) -> Schedule | None:
    """The schedule that a run of this night is of; None if it was begun by hand, or the schedule
    has been removed."""
    return schedules.of_id(session, night.partition(".")[0])


def _follow(deployment: Deployment, suites: Suites, slot_id: int) -> None:
    """See whether a running slot has come to its end."""
    with deployment.database.read() as session:
        slot = slots.get(session, slot_id)
    if slot is None:
        return
    try:
        _close_ended(deployment, suites, slot)
    except NotFoundError as gone:
        closing.close_failed(deployment, slot_id, gone.message)


def _close_ended(deployment: Deployment, suites: Suites, slot: Slot) -> None:
    if slot.job_id is not None:
        deployment.database.transact(partial(closing.close_job, deployment, slot.id))
        return
    found = {
        run_id: suites.look(run_id, deadline=slot.deadline_at) for run_id in slot.runs.values()
    }
    if all(progress.is_ended for progress in found.values()):
        deployment.database.transact(partial(closing.close_runs, deployment, slot.id, found))


def _cancel(deployment: Deployment, suites: Suites, slot: Slot) -> None:
    if slot.job_id is not None:
        ids = [slot.job_id]
        deployment.database.transact(
            lambda session: jobs.cancel_open(session, deployment.clock, ids)
        )
    for run_id in slot.runs.values():
        suites.cancel(run_id)


def _load(session: Session, slot_id: int) -> tuple[Slot, Schedule] | None:
    """None if the slot does not wait any more."""
    slot = slots.get(session, slot_id)
    if slot is None or slot.state != SlotState.WAITING:
        return None
    schedule = session.get(Schedule, slot.schedule_id)
    return None if schedule is None else (slot, schedule)


def _attempt(what: str, work: Callable[[], object]) -> None:
    """One that fails does not stop another; it is tried again at the next tick."""
    try:
        work()
    except BatchJobsError as failed:
        logger.error("Cannot look after %s now: %s", what, failed)
    except Exception:
        logger.exception("Cannot look after %s now", what)


def _moment(slot: Slot) -> str:
    return slot.slot_at.strftime("%Y-%m-%d %H:%M UTC")


def _duration(span: timedelta) -> str:
    hours, seconds = divmod(int(span.total_seconds()), 3600)
    return f"{hours} h {seconds // 60} min" if hours else f"{seconds // 60} min"
