from __future__ import annotations

from pathlib import Path

import httpx2

from batchjobs import wire
from batchjobs.cli.render import facts
from batchjobs.client.batch import Batch
from batchjobs.deployment import Deployment
from batchjobs.queue import jobs, tallies
from batchjobs.settings import Settings
from tests.support.cli import finished_job, run, run_json, waiting_job
from tests.support.jobs import answer, create_job, must_claim, open_deployment


def is_there(place: str) -> bool:
    return httpx2.get(place).is_success if place.startswith("http") else Path(place).is_file()


def test_json_is_the_batch_object(data: Path) -> None:
    job_id = finished_job(data, failed=(2,))
    with open_deployment(data) as deployment, deployment.database.read() as session:
        job = jobs.get(session, job_id)
        expected = wire.batch_object(job, tallies.tally(session, job), [])
    assert run_json("status", job_id) == expected
    assert expected["request_counts"] == {"total": 3, "completed": 2, "failed": 1}


def test_table_says_how_far_the_job_is(data: Path) -> None:
    with open_deployment(data) as deployment:
        job_id = waiting_job(deployment, 3, metadata={"owner": "me"})
        answer(deployment, must_claim(deployment), lines=[1])
    text = run("status", job_id).stdout
    assert "in_progress" in text
    assert "1 of 3 done" in text
    assert "10 in, 5 out" in text
    assert "owner=me" in text
    assert "expires" in text


def test_table_says_what_keeps_the_job_waiting(home: Path) -> None:
    with Deployment.open(Settings.load(home=home)) as deployment:
        job_id = waiting_job(deployment)
    text = run("status", job_id).stdout
    assert "No live worker serves the model 'tiny'" in text
    assert "at risk" not in text
    assert run_json("list")["data"][0]["notice"] in text


def test_table_says_that_the_job_is_at_risk(home: Path) -> None:
    with open_deployment(home) as deployment:
        job_id = waiting_job(deployment)  # long ago, by the clock that the command goes by
    assert "at risk" in run("status", job_id).stdout


def test_table_says_where_the_results_lie(data: Path) -> None:
    job_id = finished_job(data, failed=(2,))
    text = run("status", job_id).stdout
    assert "3 of 3 done (1 failed)" in text
    for row in text.splitlines():
        if row.startswith(("output", "errors")):
            assert is_there(row.split()[1])
    assert sum(row.startswith(("output", "errors")) for row in text.splitlines()) == 2


def test_words_of_users_cannot_steer_the_terminal(data: Path) -> None:
    with open_deployment(data) as deployment:
        job_id = create_job(deployment, metadata={"note": "\x1b]0;owned\x07[bold]x[/bold]"})
    text = run("status", job_id).stdout
    assert "\x1b" not in text
    assert "[bold]x[/bold]" in text


def test_list_shows_the_newest_first(data: Path) -> None:
    first = finished_job(data)
    with open_deployment(data) as deployment:
        second = create_job(deployment)
    rows = run("list").stdout.splitlines()
    found = {row.split()[0]: row.split()[1] for row in rows[1:]}
    # A server looks at it at once, and finds no file.
    assert found in ({first: "completed", second: state} for state in ("validating", "failed"))


def test_list_json_is_one_page(data: Path) -> None:
    with open_deployment(data) as deployment:
        made = {create_job(deployment) for _ in range(3)}
    page = run_json("list", "--limit", "2")
    assert page["object"] == "list"
    assert page["has_more"]
    rest = run_json("list", "--after", page["last_id"])
    assert not rest["has_more"]
    assert {batch["id"] for batch in page["data"] + rest["data"]} == made


def test_list_names_the_next_page(data: Path) -> None:
    with open_deployment(data) as deployment:
        for _ in range(2):
            create_job(deployment)
    shown = run("list", "--limit", "1").stdout.splitlines()
    assert shown[-1] == f"More: batchjobs list --after {shown[1].split()[0]}"


def test_what_is_expected_of_a_job_is_shown_where_it_is_known() -> None:
    counts = {"total": 2, "completed": 0, "failed": 0}
    known = {
        "id": "batch_1",
        "status": "in_progress",
        "request_counts": counts,
        "eta": 90_000,
        "at_risk": True,
        "notice": "No worker\x1bserves it.",
    }
    names = ("expected", "at risk", "notice")
    rows = {name: value for name, value in facts(Batch(known), {}) if name in names}
    assert rows["expected"].startswith("1970-01-0")
    assert "expected to miss its deadline" in rows["at risk"]
    assert rows["notice"] == "No worker serves it."
    bare = {"id": "batch_1", "status": "in_progress", "request_counts": counts}
    assert not {name for name, _ in facts(Batch(bare), {})} & set(names)


def test_what_computed_a_job_is_shown_once_it_is_known() -> None:
    bare = {"id": "batch_1", "status": "completed", "request_counts": {}}
    told = bare | {"system_fingerprints": ["fp_1", "fp_1_int8"]}
    assert dict(facts(Batch(told), {}))["computed by"] == "fp_1, fp_1_int8"
    for unknown in (bare, bare | {"system_fingerprints": None}):
        assert "computed by" not in dict(facts(Batch(unknown), {}))


def test_list_of_nothing_says_how_to_begin(data: Path) -> None:
    assert "batchjobs submit" in run("list").stdout
