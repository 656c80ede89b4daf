from __future__ import annotations

from pathlib import Path

from batchjobs import wire
from batchjobs.deployment import Deployment
from batchjobs.queue import jobs
from batchjobs.settings import Settings
from tests.support.cli import finished_job, run, run_json, waiting_job
from tests.support.jobs import answer, create_job, must_claim, open_deployment


def test_json_is_the_batch_object(home: Path) -> None:
    job_id = finished_job(home, failed=(2,))
    with open_deployment(home) as deployment, deployment.database.read() as session:
        job = jobs.get(session, job_id)
        expected = wire.batch_object(job, jobs.tally(session, job), [])
    assert run_json("status", job_id) == expected
    assert expected["request_counts"] == {"total": 3, "completed": 2, "failed": 1}


def test_table_says_how_far_the_job_is(home: Path) -> None:
    with open_deployment(home) as deployment:
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


def test_table_says_where_the_results_lie(home: Path) -> None:
    job_id = finished_job(home, failed=(2,))
    text = run("status", job_id).stdout
    assert "3 of 3 done (1 failed)" in text
    for row in text.splitlines():
        if row.startswith(("output", "errors")):
            assert Path(row.split()[1]).is_file()
    assert sum(row.startswith(("output", "errors")) for row in text.splitlines()) == 2


def test_words_of_users_cannot_steer_the_terminal(home: Path) -> None:
    with open_deployment(home) as deployment:
        job_id = create_job(deployment, metadata={"note": "\x1b]0;owned\x07[bold]x[/bold]"})
    text = run("status", job_id).stdout
    assert "\x1b" not in text
    assert "[bold]x[/bold]" in text


def test_list_shows_the_newest_first(home: Path) -> None:
    first = finished_job(home)
    with open_deployment(home) as deployment:
        second = create_job(deployment)
    rows = run("list").stdout.splitlines()
    found = {row.split()[0]: row.split()[1] for row in rows[1:]}
    assert found == {first: "completed", second: "validating"}


def test_list_json_is_one_page(home: Path) -> None:
    with open_deployment(home) as deployment:
        made = {create_job(deployment) for _ in range(3)}
    page = run_json("list", "--limit", "2")
    assert page["object"] == "list"
    assert page["has_more"]
    rest = run_json("list", "--after", page["last_id"])
    assert not rest["has_more"]
    assert {batch["id"] for batch in page["data"] + rest["data"]} == made


def test_list_names_the_next_page(home: Path) -> None:
    with open_deployment(home) as deployment:
        for _ in range(2):
            create_job(deployment)
    shown = run("list", "--limit", "1").stdout.splitlines()
    assert shown[-1] == f"More: batchjobs list --after {shown[1].split()[0]}"


def test_list_of_nothing_says_how_to_begin(home: Path) -> None:
    assert "batchjobs submit" in run("list").stdout
