from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from batchjobs.api.page.schedules import PAGE_SLOTS
from batchjobs.deployment import Deployment
from batchjobs.schedules.desk import Desk
from batchjobs.schedules.orders import ScheduleOrder
from tests.support.jobs import ENDPOINT, add_input, clock_of, request_line
from tests.support.page import OF_A_SCHEDULE, link, sign_in, words
from tests.unit.schedules.nights import (
    FakeSuites,
    add_schedule,
    set_clock,
    slots_of,
    states,
    tick_at,
)

NIGHT = "/schedules/nightly"


@pytest.fixture
def nightly(deployment: Deployment) -> None:
    """Of a file, at 02:00 in Shanghai, with a deadline."""
    set_clock(deployment, "2026-11-30T00:00")
    add_schedule(deployment, zone="Asia/Shanghai", deadline="07:00")


def test_schedules_are_listed_with_their_next_and_last_runs(
    deployment: Deployment, client: TestClient, nightly: None
) -> None:
    said = words(client.get("/schedules").text)
    assert "nightly input.jsonl 0 2 * * * Asia/Shanghai not run yet in 18 h" in said
    assert "Tue 2026-12-01 02:00" in said
    assert "none yet" in said
    tick_at(deployment, "2026-11-30T18:00")
    [slot] = slots_of(deployment)
    page = client.get("/schedules").text
    assert f'href="/jobs/{slot["batch_id"]}"' in page
    assert "running now Job" in words(page)
    assert "Wed 2026-12-02 02:00" in words(page)


def test_page_without_schedules_says_how_to_add_one(client: TestClient) -> None:
    said = words(client.get("/schedules").text)
    assert "No schedules yet." in said
    assert "batchjobs schedules add" in said


def test_history_has_every_slot_by_its_own_clock_and_why_it_did_not_run(
    deployment: Deployment, client: TestClient, nightly: None
) -> None:
    tick_at(deployment, "2026-11-30T18:00")
    tick_at(deployment, "2026-12-01T18:00")
    tick_at(deployment, "2026-12-03T18:01")
    page = client.get(NIGHT).text
    said = words(page)
    assert states(deployment) == ["running", "skipped", "missed", "skipped"]
    assert "Fri 2026-12-04 02:00 skipped overlap: the slot of 2026-11-30 18:00 UTC" in said
    assert "Thu 2026-12-03 02:00 missed nobody was there when it was due" in said
    assert 'title="2026-12-02 18:00:00 UTC" data-local' in page
    assert "by 07:00 (Asia/Shanghai)" in said
    assert "skip: while one runs, the next is skipped" in said
    assert "6 h: found later, it is missed" in said
    assert ENDPOINT in said


def test_night_on_which_clocks_change_is_told(deployment: Deployment, client: TestClient) -> None:
    set_clock(deployment, "2026-10-24T12:00")
    add_schedule(deployment, "30 2 * * *", zone="Europe/Berlin")
    said = words(client.get(NIGHT).text)
    assert "Sun 2026-10-25 02:30 +0200" in said
    assert "comes twice that day; runs the first time" in said


def test_history_is_read_page_by_page(
    deployment: Deployment, client: TestClient, nightly: None
) -> None:
    Desk(deployment).pause("nightly")
    for _ in range(PAGE_SLOTS + 2):
        clock_of(deployment).advance(timedelta(milliseconds=200))
        Desk(deployment).run("nightly")
    first = client.get(NIGHT).text
    older = link(first, "next")
    assert older is not None
    second = client.get(older).text
    assert (first.count('id="slot-'), second.count('id="slot-')) == (PAGE_SLOTS, 2)
    assert link(second, "next") is None
    for wrong in ("x", "-1", "9" * 30, ""):
        assert client.get(f"{NIGHT}?before={wrong}").text.count('id="slot-') == PAGE_SLOTS


def test_slot_leads_to_its_runs_and_a_job_to_its_schedule(
    deployment: Deployment, client: TestClient
) -> None:
    set_clock(deployment, "2026-11-30T00:00")
    add_schedule(deployment, suites=["/srv/arith.yaml"])
    suites = FakeSuites()
    tick_at(deployment, "2026-11-30T02:00", suites)
    suites.end("worse")
    tick_at(deployment, "2026-11-30T02:05", suites)
    page = client.get(NIGHT).text
    assert 'href="/evals/runs/run_1">arith.yaml' in page
    assert "done worse arith.yaml" in words(page)
    assert "alarm" in words(client.get("/schedules").text)
    add_schedule(deployment, name="of-a-file")
    tick_at(deployment, "2026-12-01T02:00", suites)
    job_id = slots_of(deployment, "of-a-file")[0]["batch_id"]
    job = client.get(f"/jobs/{job_id}").text
    assert 'href="/schedules/of-a-file"' in job
    assert "slot of Tue 2026-12-01 02:00 UTC" in words(job)


def test_person_pauses_resumes_runs_and_removes(
    deployment: Deployment, client: TestClient, nightly: None
) -> None:
    for action, said in (("pause", "paused since"), ("resume", "in 18 h")):
        reply = client.post(f"{NIGHT}/{action}")
        assert (reply.status_code, reply.headers["location"]) == (303, NIGHT)
        assert said in words(client.get(NIGHT).text)
    assert "Run it now?" in words(client.get(f"{NIGHT}/run").text)
    assert states(deployment) == []
    assert client.post(f"{NIGHT}/run").headers["location"] == NIGHT
    assert "waiting by hand" in words(client.get(NIGHT).text)
    assert "it cannot be removed" in words(client.get(f"{NIGHT}/remove").text)
    refused = client.post(f"{NIGHT}/remove")
    assert refused.status_code == 409
    assert "has a slot that is waiting" in words(refused.text)
    add_schedule(deployment, name="other")
    assert client.post("/schedules/other/remove").headers["location"] == "/schedules"
    assert client.get("/schedules/other").status_code == 404


def test_request_from_elsewhere_changes_nothing(
    deployment: Deployment, client: TestClient, nightly: None
) -> None:
    before = Desk(deployment).get("nightly")
    for method, path in OF_A_SCHEDULE:
        if method == "POST":
            reply = client.post(
                path.format(name="nightly"), headers={"sec-fetch-site": "cross-site"}
            )
            assert reply.status_code == 403
    assert Desk(deployment).get("nightly") == before
    assert states(deployment) == []


def test_schedule_of_another_tenant_is_as_one_that_never_was(
    deployment: Deployment, closed: TestClient
) -> None:
    file = add_input(deployment, [request_line("a")], tenant="owner")
    order = ScheduleOrder(name="theirs", cron="0 2 * * *", file_id=file.id, endpoint=ENDPOINT)
    Desk(deployment, "owner").add(order)
    sign_in(closed, deployment, "stranger")
    assert "No schedules yet." in words(closed.get("/schedules").text)
    for method, path in OF_A_SCHEDULE:
        for action in ("run", "remove"):
            known, never = (
                closed.request(method, path.format(name=name, action=action))
                for name in ("theirs", "never1")
            )
            assert (known.status_code, never.status_code) == (404, 404)
            assert known.text.replace("theirs", "never1") == never.text
    sign_in(closed, deployment, "owner")
    assert "theirs" in closed.get("/schedules").text
    assert Path(closed.post("/schedules/theirs/pause").headers["location"]).name == "theirs"
