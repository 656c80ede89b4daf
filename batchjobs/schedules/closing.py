"""The end of a slot, and whom it concerns: each end is told once, in the transaction of the change.

| the slot | its schedule is then | told as |
|---|---|---|
| a suite is worse, confirmed | alarm | eval.run.regressed, of each such run |
| a run has no verdict | no_verdict | eval.run.no_verdict |
| failed | failed | schedule.slot.failed |
| done, after one of these | ok | schedule.recovered, and eval.run.recovered of its runs |
| done, after done | ok | nothing |
| missed | as it was | schedule.slot.missed |
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from batchjobs.clock import Clock
from batchjobs.deployment import Deployment
from batchjobs.queue import events, jobs, schedules, slots
from batchjobs.schedules.states import Health, SlotState
from batchjobs.schedules.suites import NO_VERDICT, WORSE, Progress
from batchjobs.schedules.tables import Schedule, Slot
from batchjobs.states import TERMINAL, JobState

REGRESSED = "eval.run.regressed"
RECOVERED = "eval.run.recovered"
WITHOUT_VERDICT = "eval.run.no_verdict"
SLOT_FAILED = "schedule.slot.failed"
SLOT_MISSED = "schedule.slot.missed"
SCHEDULE_RECOVERED = "schedule.recovered"


def close_job(deployment: Deployment, slot_id: int, session: Session) -> None:
    """End a slot whose job has ended."""
    slot = slots.get(session, slot_id)
    if slot is None or slot.job_id is None:
        return
    job = jobs.get(session, slot.job_id)
    if job.status not in TERMINAL:
        return
    if job.status == JobState.COMPLETED and job.completed_lines:
        _close(session, deployment.clock, slot_id, SlotState.DONE, Health.OK)
        return
    how = "without a single answer" if job.status == JobState.COMPLETED else ""
    reason = f"its job {job.id} is {job.status} {how}".strip()
    _close(session, deployment.clock, slot_id, SlotState.FAILED, Health.FAILED, reason=reason)


def close_failed(deployment: Deployment, slot_id: int, reason: str) -> None:
    """End a slot that could not be started."""
    deployment.database.transact(
        partial(
            _close,
            clock=deployment.clock,
            slot_id=slot_id,
            to=SlotState.FAILED,
            health=Health.FAILED,
            reason=reason,
        )
    )


def close_runs(
    deployment: Deployment, slot_id: int, found: Mapping[str, Progress], session: Session
) -> None:
    """End a slot all of whose runs have ended."""
    failed = [each for each in found.values() if each.word is None]
    words = {run_id: each.word for run_id, each in found.items() if each.word is not None}
    if failed:
        state, health = SlotState.FAILED, Health.FAILED
        reason = "; ".join(f"{each.suite} failed: {each.failure}" for each in failed)
    else:
        state, reason = SlotState.DONE, None
        health = _health(words.values())
    _close(
        session,
        deployment.clock,
        slot_id,
        state,
        health,
        reason=reason,
        words=words,
        found=found,
    )


def tell_missed(session: Session, clock: Clock, schedule: Schedule, slot: Slot) -> None:
    _tell(session, clock, SLOT_MISSED, schedule, slot, reason=slot.reason)


def _health(words: Any) -> Health:
    if WORSE in words:
        return Health.ALARM
    return Health.NO_VERDICT if NO_VERDICT in words else Health.OK


def _close(
    session: Session,
    clock: Clock,
    slot_id: int,
    to: SlotState,
    health: Health,
    *,
    reason: str | None = None,
    words: Mapping[str, str] | None = None,
    found: Mapping[str, Progress] | None = None,
) -> None:
    if not slots.move(session, clock, slot_id, to, reason=reason, words=dict(words or {})):
        return
    slot = slots.get(session, slot_id)
    assert slot is not None
    before = schedules.set_health(session, slot.schedule_id, health)
    schedule = session.get(Schedule, slot.schedule_id)
    assert schedule is not None
    has_recovered = health == Health.OK and before not in (None, Health.OK)
    for run_id, progress in (found or {}).items():
        _tell_run(session, clock, schedule, slot, run_id, progress, has_recovered=has_recovered)
    if health == Health.FAILED:
        _tell(session, clock, SLOT_FAILED, schedule, slot, reason=reason)
    if has_recovered:
        _tell(session, clock, SCHEDULE_RECOVERED, schedule, slot, was=str(before))


def _tell_run(
    session: Session,
    clock: Clock,
    schedule: Schedule,
    slot: Slot,
    run_id: str,
    progress: Progress,
    *,
    has_recovered: bool,
) -> None:
    kind = {WORSE: REGRESSED, NO_VERDICT: WITHOUT_VERDICT}.get(progress.word or "")
    if kind is None and has_recovered and progress.word is not None:
        kind = RECOVERED
    if kind is not None:
        about = {"id": run_id, "suite": progress.suite, "verdict": progress.sentence}
        _tell(session, clock, kind, schedule, slot, **about)


def _tell(
    session: Session, clock: Clock, kind: str, schedule: Schedule, slot: Slot, **more: Any
) -> None:
    """`id` is the run's, if it is about one, else the schedule's."""
    data = {
        "id": schedule.id,
        "schedule": schedule.name,
        "slot": slot.slot_at.isoformat(),
        "job_id": slot.job_id,
        **more,
    }
    events.emit(
        session,
        kind,
        {name: value for name, value in data.items() if value is not None},
        now=clock.now(session),
        tenant=schedule.tenant,
    )
