from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from batchjobs.clock import ManualClock
from batchjobs.deployment import Deployment
from batchjobs.errors import ConflictError, InvalidRequestError, NotFoundError
from batchjobs.models import Job
from batchjobs.queue import jobs
from batchjobs.schedules.desk import Desk
from batchjobs.schedules.firing import tick
from batchjobs.schedules.orders import ScheduleOrder
from batchjobs.schedules.states import Overlap
from batchjobs.states import JobState
from tests.support.jobs import (
    ENDPOINT,
    MODEL,
    add_input,
    clock_of,
    load_job,
    open_deployment,
    request_line,
)
from tests.unit.schedules.nights import (
    FakeSuites,
    add_schedule,
    know_model,
    moments,
    set_clock,
    slots_of,
    states,
    tick_at,
    told,
    utc,
)


@pytest.fixture
def anywhere(tmp_path: Path, database_url: str | None) -> Iterator[Deployment]:
    """On either kind of database."""
    with open_deployment(tmp_path, database_url=database_url) as opened:
        yield opened


def job_of(deployment: Deployment, number: int = -1) -> str:
    job_id: str = slots_of(deployment)[number]["batch_id"]
    return job_id


def fail_job(deployment: Deployment, number: int = -1) -> None:
    with deployment.database.write() as session:
        jobs.fail_validation(session, deployment.clock, job_of(deployment, number), [])


def complete_job(deployment: Deployment, number: int = -1) -> None:
    with deployment.database.write() as session:
        session.execute(
            update(Job)
            .where(Job.id == job_of(deployment, number))
            .values(status=JobState.COMPLETED, completed_lines=1, failed_lines=0)
        )


def test_slot_makes_a_job_of_the_file_once(anywhere: Deployment) -> None:
    set_clock(anywhere, "2026-11-30T00:00")
    add_schedule(anywhere)
    tick_at(anywhere, "2026-11-30T01:59")
    assert slots_of(anywhere) == []
    for second in range(3):
        tick_at(anywhere, f"2026-11-30T02:00:0{second}")
    [slot] = slots_of(anywhere)
    assert (slot["status"], slot["kind"]) == ("running", "cron")
    assert load_job(anywhere, slot["batch_id"]).job_metadata == {
        "schedule": "nightly",
        "slot": "2026-11-30T02:00:00+00:00",
    }
    with anywhere.database.read() as session:
        assert len(jobs.page(session, limit=10)[0]) == 1


def test_two_beats_at_once_make_one_run(anywhere: Deployment) -> None:
    set_clock(anywhere, "2026-11-30T00:00")
    add_schedule(anywhere)
    add_schedule(anywhere, name="suites", suites=["a.yaml", "b.yaml"])
    set_clock(anywhere, "2026-11-30T02:00")
    suites, together = FakeSuites(), threading.Barrier(4)

    def beat() -> None:
        together.wait()
        tick(anywhere, suites)

    beats = [threading.Thread(target=beat) for _ in range(4)]
    for each in beats:
        each.start()
    for each in beats:
        each.join()
    tick(anywhere, suites)
    assert states(anywhere) == states(anywhere, "suites") == ["running"]
    assert sorted(path for _, path in suites.nights.values()) == ["a.yaml", "b.yaml"]
    with anywhere.database.read() as session:
        assert len(jobs.page(session, limit=10)[0]) == 1


@pytest.mark.parametrize(
    ("zone", "cron", "begin", "slots"),
    [
        ("America/New_York", "30 2 * * *", "2026-03-07T12:00", ["03-08 07:00", "03-09 06:30"]),
        ("America/New_York", "30 1 * * *", "2026-10-31T12:00", ["11-01 05:30", "11-02 06:30"]),
        ("Europe/Berlin", "0 2 * * *", "2026-03-28T12:00", ["03-29 01:00", "03-30 00:00"]),
        ("Europe/Berlin", "30 2 * * *", "2026-10-24T12:00", ["10-25 00:30", "10-26 01:30"]),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T00:00", ["10-03 15:30", "10-04 15:15"]),
        ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T00:00", ["04-04 14:45", "04-05 15:15"]),
    ],
)
def test_nights_of_change_have_one_run_each(
    deployment: Deployment, zone: str, cron: str, begin: str, slots: list[str]
) -> None:
    """Ticked every ten minutes, as a beat would."""
    set_clock(deployment, begin)
    add_schedule(deployment, cron, zone=zone, suites=["a.yaml"])
    suites = FakeSuites()
    for _ in range(6 * 48):
        clock_of(deployment).advance(timedelta(minutes=10))
        tick(deployment, suites)
        if suites.started:
            suites.end("ok")
    assert moments(slots_of(deployment)) == slots
    assert len(suites.started) == 2
    assert states(deployment) == ["done", "done"]


def test_missed_slot_runs_once_within_its_catch_up_window(deployment: Deployment) -> None:
    set_clock(deployment, "2026-11-30T00:00")
    add_schedule(deployment, catch_up="6h")
    tick_at(deployment, "2026-11-30T07:59")
    tick_at(deployment, "2026-11-30T08:00")
    assert states(deployment) == ["running"]
    assert told(deployment) == []


def test_missed_slot_is_recorded_beyond_its_catch_up_window(deployment: Deployment) -> None:
    set_clock(deployment, "2026-11-30T00:00")
    add_schedule(deployment, catch_up="6h")
    tick_at(deployment, "2026-11-30T08:01")
    [slot] = slots_of(deployment)
    assert slot["status"] == "missed"
    assert slot["reason"] == (
        "nobody was there until 6 h 1 min after it was due, and its catch-up window is 6 h 0 min"
    )
    assert told(deployment) == ["schedule.slot.missed"]


def test_of_several_missed_slots_only_the_newest_runs(deployment: Deployment) -> None:
    set_clock(deployment, "2026-11-25T00:00")
    add_schedule(deployment)
    tick_at(deployment, "2026-11-28T03:00")
    assert moments(slots_of(deployment)) == [
        "11-25 02:00",
        "11-26 02:00",
        "11-27 02:00",
        "11-28 02:00",
    ]
    assert states(deployment) == ["missed", "missed", "missed", "running"]
    assert told(deployment) == ["schedule.slot.missed"] * 3


def test_long_absence_leaves_a_bounded_trace(deployment: Deployment) -> None:
    set_clock(deployment, "2026-01-01T00:00")
    add_schedule(deployment, "* * * * *")
    tick_at(deployment, "2026-11-28T03:00")
    assert len(slots_of(deployment)) == 100


def test_slot_whose_deadline_is_past_is_missed(deployment: Deployment) -> None:
    set_clock(deployment, "2026-11-30T00:00")
    add_schedule(deployment, deadline="07:00", catch_up="12h")
    tick_at(deployment, "2026-11-30T07:30")
    assert slots_of(deployment)[0]["reason"] == "its deadline was past before anybody was there"


def test_deadline_becomes_the_jobs(deployment: Deployment) -> None:
    set_clock(deployment, "2026-11-30T00:00")
    add_schedule(deployment, zone="Asia/Shanghai", deadline="07:00")
    tick_at(deployment, "2026-11-30T18:00:05")
    assert load_job(deployment, job_of(deployment)).expires_at == utc("2026-11-30T23:00")


def test_overlap_is_skipped_and_says_by_whom(deployment: Deployment) -> None:
    set_clock(deployment, "2026-11-30T00:00")
    add_schedule(deployment)
    tick_at(deployment, "2026-11-30T02:00")
    tick_at(deployment, "2026-12-01T02:00")
    assert states(deployment) == ["running", "skipped"]
    assert (
        slots_of(deployment)[1]["reason"] == "overlap: the slot of 2026-11-30 02:00 UTC still runs"
    )
    complete_job(deployment, 0)
    tick_at(deployment, "2026-12-02T02:00")
    assert states(deployment) == ["done", "skipped", "running"]


def test_overlap_waits_its_turn_and_one_only(deployment: Deployment) -> None:
    set_clock(deployment, "2026-11-30T00:00")
    add_schedule(deployment, overlap=Overlap.QUEUE)
    for day in ("11-30", "12-01", "12-02"):
        tick_at(deployment, f"2026-{day}T02:00")
    assert states(deployment) == ["running", "waiting", "skipped"]
    complete_job(deployment, 0)
    tick_at(deployment, "2026-12-02T02:05")
    assert states(deployment) == ["done", "running", "skipped"]


def test_overlap_replaces_the_earlier_job(deployment: Deployment) -> None:
    set_clock(deployment, "2026-11-30T00:00")
    add_schedule(deployment, overlap=Overlap.REPLACE)
    tick_at(deployment, "2026-11-30T02:00")
    tick_at(deployment, "2026-12-01T02:00")
    assert states(deployment) == ["replaced", "running"]
    assert load_job(deployment, job_of(deployment, 0)).status == JobState.CANCELLING
    assert told(deployment) == []


def test_overlap_replaces_the_earlier_runs(deployment: Deployment) -> None:
    set_clock(deployment, "2026-11-30T00:00")
    add_schedule(deployment, suites=["a.yaml"], overlap=Overlap.REPLACE)
    suites = FakeSuites()
    tick_at(deployment, "2026-11-30T02:00", suites)
    tick_at(deployment, "2026-12-01T02:00", suites)
    assert suites.cancelled == ["run_1"]
    assert suites.started == ["run_1", "run_2"]


def test_runs_that_a_crash_has_begun_are_taken_on(deployment: Deployment) -> None:
    set_clock(deployment, "2026-11-30T00:00")
    add_schedule(deployment, suites=["a.yaml", "b.yaml"])

    class Dying(FakeSuites):
        def start(self, path: str, **asked: object) -> str:
            if path == "b.yaml" and not self.started[1:]:
                self.started.append("run_lost")
                raise SystemExit
            return super().start(path, **asked)  # type: ignore[arg-type]

    suites = Dying()
    set_clock(deployment, "2026-11-30T02:00")
    with pytest.raises(SystemExit):
        tick(deployment, suites)
    assert states(deployment) == ["waiting"]
    tick(deployment, suites)
    [slot] = slots_of(deployment)
    assert slot["status"] == "running"
    assert [run["suite"] for run in slot["runs"]] == ["a.yaml", "b.yaml"]
    assert [path for _, path in suites.nights.values()] == ["a.yaml", "b.yaml"]


def test_runs_of_a_slot_are_judged_together_and_due_together(deployment: Deployment) -> None:
    set_clock(deployment, "2026-11-30T00:00")
    add_schedule(deployment, suites=["a.yaml", "b.yaml"], deadline="07:00")
    suites = FakeSuites()
    tick_at(deployment, "2026-11-30T02:00", suites)
    assert len({night for night, _ in suites.nights.values()}) == 1
    assert suites.deadlines == [utc("2026-11-30T07:00")] * 2


def test_suite_that_cannot_be_run_fails_its_slot(deployment: Deployment) -> None:
    set_clock(deployment, "2026-11-30T00:00")
    add_schedule(deployment, suites=["a.yaml"])
    tick_at(deployment, "2026-11-30T02:00", FakeSuites(broken={"a.yaml"}))
    [slot] = slots_of(deployment)
    assert slot["status"] == "failed"
    assert slot["reason"] == "a.yaml cannot be run: line 3: there is no scorer 'exakt'."
    assert told(deployment) == ["schedule.slot.failed"]


def test_each_end_is_told_once(deployment: Deployment) -> None:
    """Ok, worse, worse, no verdict, failed, ok, ok: an alarm each night, and one recovery."""
    set_clock(deployment, "2026-11-01T00:00")
    add_schedule(deployment, suites=["a.yaml"])
    suites = FakeSuites()
    for day, word in enumerate(["ok", "worse", "worse", "no verdict", None, "better", "ok"], 1):
        tick_at(deployment, f"2026-11-{day:02}T02:00", suites)
        suites.end(word, failure=None if word else "its requests were refused")
        tick_at(deployment, f"2026-11-{day:02}T03:00", suites)
        tick_at(deployment, f"2026-11-{day:02}T03:01", suites)
    *nights, last, last_but_one = told(deployment)
    assert nights == [
        "eval.run.regressed",
        "eval.run.regressed",
        "eval.run.no_verdict",
        "schedule.slot.failed",
    ]
    assert {last, last_but_one} == {"eval.run.recovered", "schedule.recovered"}
    assert Desk(deployment).get("nightly")["health"] == "ok"


def test_job_that_fails_fails_its_slot(deployment: Deployment) -> None:
    set_clock(deployment, "2026-11-30T00:00")
    add_schedule(deployment)
    tick_at(deployment, "2026-11-30T02:00")
    fail_job(deployment)
    tick_at(deployment, "2026-11-30T02:01")
    [slot] = slots_of(deployment)
    assert (slot["status"], slot["reason"]) == ("failed", f"its job {slot['batch_id']} is failed")
    assert told(deployment) == ["schedule.slot.failed"]
    assert told(deployment, but="schedule.") == ["batch.failed"]


def test_job_that_is_gone_fails_its_slot(deployment: Deployment) -> None:
    set_clock(deployment, "2026-11-30T00:00")
    add_schedule(deployment)
    tick_at(deployment, "2026-11-30T02:00")
    fail_job(deployment)
    with deployment.database.write() as session:
        jobs.remove(session, job_of(deployment))
    tick_at(deployment, "2026-11-30T02:01")
    assert states(deployment) == ["failed"]


def test_paused_schedule_has_no_slots_and_no_misses(deployment: Deployment) -> None:
    set_clock(deployment, "2026-11-25T00:00")
    add_schedule(deployment)
    desk = Desk(deployment)
    assert desk.pause("nightly")["next_runs"] == []
    tick_at(deployment, "2026-11-27T03:00")
    assert desk.resume("nightly")["paused_at"] is None
    tick_at(deployment, "2026-11-27T03:01")
    assert slots_of(deployment) == []
    tick_at(deployment, "2026-11-28T02:00")
    assert states(deployment) == ["running"]


def test_new_schedule_begins_now(deployment: Deployment) -> None:
    set_clock(deployment, "2026-11-30T02:30")
    add_schedule(deployment)
    tick_at(deployment, "2026-11-30T02:31")
    assert slots_of(deployment) == []


def test_run_now_is_a_slot_of_its_own(deployment: Deployment) -> None:
    set_clock(deployment, "2026-11-30T00:00")
    add_schedule(deployment)
    desk = Desk(deployment)
    desk.pause("nightly")
    assert desk.run("nightly")["status"] == "waiting"
    tick_at(deployment, "2026-11-30T00:01")
    [slot] = slots_of(deployment)
    assert (slot["kind"], slot["status"]) == ("manual", "running")


def test_removed_schedule_is_gone_with_its_history(deployment: Deployment) -> None:
    set_clock(deployment, "2026-11-30T00:00")
    add_schedule(deployment)
    tick_at(deployment, "2026-11-30T02:00")
    desk = Desk(deployment)
    with pytest.raises(ConflictError, match="has a slot that is running"):
        desk.remove("nightly")
    complete_job(deployment)
    tick_at(deployment, "2026-11-30T02:30")
    assert desk.remove("nightly")["deleted"]
    with pytest.raises(NotFoundError):
        desk.get("nightly")
    add_schedule(deployment)
    assert slots_of(deployment) == []


def test_clock_of_another_host_decides_nothing(deployment: Deployment) -> None:
    """One beat's clock is behind: what the other has seen stays seen."""
    set_clock(deployment, "2026-11-30T00:00")
    add_schedule(deployment)
    tick_at(deployment, "2026-11-30T02:00")
    behind = replace(deployment, clock=ManualClock(utc("2026-11-30T01:00")))
    tick(behind, FakeSuites())
    tick_at(deployment, "2026-11-30T02:05")
    assert states(deployment) == ["running"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [({"model": "nobody"}, "No model 'nobody'"), ({"endpoint": "/v1/nope"}, "/v1/nope")],
)
def test_a_file_that_no_slot_could_run_is_refused_when_it_is_added(
    deployment: Deployment, changes: dict[str, str], sentence: str
) -> None:
    file = add_input(deployment, [request_line("a")])
    known: dict[str, Any] = {
        "name": "nightly",
        "cron": "0 2 * * *",
        "file_id": file.id,
        "endpoint": ENDPOINT,
    }
    with pytest.raises(InvalidRequestError, match=sentence):
        Desk(deployment).add(ScheduleOrder(**{**known, **changes}))
    assert Desk(deployment).index() == []


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([], "is empty"),
        ([request_line("a"), request_line("a")], "Line 2 of the file: .*duplicate"),
        ([request_line("a", model="nobody"), {}, {}], "Line 1 of .*nobody.*and 2 other problems"),
    ],
    ids=["empty", "twice", "unknown model"],
)
def test_a_file_that_would_fail_every_night_is_refused_when_it_is_added(
    deployment: Deployment, lines: list[dict[str, Any]], sentence: str
) -> None:
    know_model(deployment)
    file = add_input(deployment, lines)
    order = ScheduleOrder(name="nightly", cron="0 2 * * *", file_id=file.id, endpoint=ENDPOINT)
    with pytest.raises(InvalidRequestError, match=sentence):
        Desk(deployment).add(order)
    assert Desk(deployment).index() == []


def test_model_of_a_schedule_takes_the_place_of_unknown_ones(deployment: Deployment) -> None:
    know_model(deployment)
    file = add_input(deployment, [request_line("a", model="nobody")])
    order = ScheduleOrder(
        name="nightly", cron="0 2 * * *", file_id=file.id, endpoint=ENDPOINT, model=MODEL
    )
    assert Desk(deployment).add(order)["model"] == MODEL
