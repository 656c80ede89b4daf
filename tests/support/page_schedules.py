"""Schedules as the page shows them, with slots that ended in every way."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from batchjobs.deployment import Deployment
from batchjobs.queue import schedules as rows
from batchjobs.queue import slots
from batchjobs.schedules.desk import Desk
from batchjobs.schedules.orders import ScheduleOrder
from batchjobs.schedules.states import Health, Overlap, SlotState
from batchjobs.schedules.tables import Schedule
from batchjobs.schedules.timetable import Timetable, deadline_of
from tests.support.jobs import ENDPOINT, add_input, request_line
from tests.support.page_nights import MODELS


def populate_schedules(deployment: Deployment, run_ids: Sequence[str], job_id: str) -> None:
    """One of suites with a long history, one of a file, and one that is paused."""
    nightly = add_schedule(
        deployment,
        name="nightly-evals",
        cron="0 2 * * *",
        zone="Asia/Shanghai",
        suites=["/srv/evals/arithmetic.yaml", "/srv/evals/json-fields.yaml"],
        deadline="07:00",
    )
    states = [SlotState.DONE] * 9
    states[2], states[5], states[6] = SlotState.MISSED, SlotState.FAILED, SlotState.SKIPPED
    words = ["ok", "ok", "ok", "better", "ok", "ok", "ok", "no verdict", "worse"]
    for number, (state, word) in enumerate(zip(states, words, strict=True)):
        run_id = run_ids[number % len(run_ids)]
        add_slot(deployment, nightly, len(states) - number, state, run_id, word)
    _finish(deployment, nightly, Health.ALARM)
    digest = add_schedule(
        deployment,
        name="morning-digest",
        cron="30 6 * * 1-5",
        zone="Europe/Berlin",
        file_id=_file(deployment, "digest-of-the-day.jsonl"),
        endpoint=ENDPOINT,
        overlap=Overlap.REPLACE,
        model=MODELS[1],
        priority=5,
    )
    add_slot(deployment, digest, 1, SlotState.RUNNING, None, None, job_id=job_id)
    _finish(deployment, digest, Health.OK)
    paused = add_schedule(
        deployment,
        name="weekly-report",
        cron="15 4 * * 0",
        zone="UTC",
        file_id=_file(deployment, "report.jsonl"),
        endpoint=ENDPOINT,
        overlap=Overlap.QUEUE,
    )
    Desk(deployment).pause(paused.name)


def _file(deployment: Deployment, name: str) -> str:
    return add_input(deployment, [request_line("a", model=MODELS[0])], filename=name).id


def add_schedule(deployment: Deployment, **order: Any) -> Schedule:
    Desk(deployment).add(ScheduleOrder(**order))
    with deployment.database.read() as session:
        return rows.get(session, order["name"])


def _finish(deployment: Deployment, schedule: Schedule, health: Health) -> None:
    with deployment.database.write() as session:
        rows.set_health(session, schedule.id, health)


def add_slot(
    deployment: Deployment,
    schedule: Schedule,
    nights_ago: int,
    state: SlotState,
    run_id: str | None,
    word: str | None,
    *,
    job_id: str | None = None,
) -> None:
    """A slot of the past, as firing and closing would have left it."""
    reasons = {
        SlotState.MISSED: "nobody was there when it was due, and a newer one is due",
        SlotState.FAILED: "arithmetic failed: There is no model 'llama'.",
        SlotState.SKIPPED: "overlap: the slot of 2026-01-28 18:00 UTC still runs",
    }
    table = Timetable(schedule.cron, schedule.zone)
    with deployment.database.write() as session:
        now = deployment.clock.now(session)
        slot_at = table.missed(now - timedelta(days=40), now, limit=nights_ago)[-1]
        deadline = (
            None
            if schedule.deadline is None
            else deadline_of(slot_at, schedule.deadline, schedule.zone)
        )
        is_over = state in reasons and state != SlotState.FAILED
        made = slots.insert(
            session,
            deployment.clock,
            schedule_id=schedule.id,
            slot_at=slot_at,
            state=state if is_over else SlotState.WAITING,
            reason=reasons.get(state),
            deadline_at=deadline,
        )
        assert made is not None
        if is_over:
            return
        slots.move(session, deployment.clock, made, SlotState.RUNNING, job_id=job_id)
        if run_id is not None:
            slots.note_runs(session, made, {schedule.suites[0]: run_id} if schedule.suites else {})
        if state == SlotState.RUNNING:
            return
        words = {run_id: word} if state == SlotState.DONE else {}
        slots.move(session, deployment.clock, made, state, words=words)
