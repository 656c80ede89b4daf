from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete
from starlette.testclient import TestClient

from batchjobs.api.app import create_app
from batchjobs.api.page.jobs import PAGE_JOBS
from batchjobs.deployment import Deployment
from batchjobs.finalize import finalize
from batchjobs.models import Job
from batchjobs.queue import jobs
from tests.support.jobs import (
    add_input,
    clock_of,
    complete,
    complete_all,
    create_job,
    load_job,
    must_claim,
    open_deployment,
    request_line,
    start_job,
)
from tests.support.page import OF_A_JOB, job_ids, link, sign_in, words
from tests.support.page_jobs import add_thousands, populate

NEVER = f"batch_{'0' * 32}"
MANY = 10_000
MAX_SECONDS = 0.1


@pytest.fixture
def deployment(tmp_path: Path, database_url: str | None) -> Iterator[Deployment]:
    with open_deployment(tmp_path, database_url=database_url, poll_seconds=0.01) as opened:
        yield opened


def search(client: TestClient, text: str, **asked: str) -> list[str]:
    return job_ids(client.get("/", params={"q": text, **asked}).text)


def test_jobs_are_listed_newest_first_with_what_is_done(
    deployment: Deployment, client: TestClient
) -> None:
    requests = [request_line(f"line-{number}") for number in range(4)]
    first = start_job(deployment, requests, shard_max_lines=4, filename="first.jsonl")
    complete_all(deployment, first, failed={2})
    clock_of(deployment).advance(timedelta(seconds=90))
    second = create_job(deployment, "file-1")
    page = client.get("/").text
    assert job_ids(page) == [second, first]
    assert "first.jsonl" in page
    assert "finalizing 4 / 4 1 failed" in words(page)
    assert "1 min ago" in words(page)


def test_list_without_jobs_says_how_to_make_one(client: TestClient, closed: TestClient) -> None:
    for asked, needs_key in ((client, False), (closed, True)):
        if needs_key:
            deployment = closed.app.state.deployment  # type: ignore[attr-defined]
            sign_in(closed, deployment, "default")
        page = asked.get("/").text
        assert "BATCHJOBS_URL=http://testserver" in page
        assert "batchjobs submit requests.jsonl" in page
        assert ("BATCHJOBS_API_KEY" in page) == needs_key


def test_tenant_sees_its_own_jobs_only(
    deployment: Deployment, client: TestClient, closed: TestClient
) -> None:
    theirs = create_job(deployment, tenant="research")
    others = create_job(deployment)
    sign_in(closed, deployment, "research")
    assert job_ids(closed.get("/").text) == [theirs]
    assert "All 1" in words(closed.get("/").text)
    assert job_ids(client.get("/").text) == [others]


@pytest.mark.parametrize("is_ended", [False, True])
def test_job_of_another_tenant_is_as_one_that_never_was(
    deployment: Deployment, closed: TestClient, is_ended: bool
) -> None:
    theirs = start_job(deployment, [request_line("a"), request_line("b")])
    if is_ended:
        complete_all(deployment, theirs, failed={2})
        finalize(deployment, theirs)
    sign_in(closed, deployment, "research")
    before = load_job(deployment, theirs).status
    for method, path in OF_A_JOB:
        for kind in ("input", "output", "error", "so-far", "cancel", "retry"):
            known, unknown = (
                closed.request(method, path.format(job_id=name, kind=kind, action=kind))
                for name in (theirs, NEVER)
            )
            assert (known.status_code, unknown.status_code) == (404, 404)
            assert known.text.replace(theirs, NEVER) == unknown.text
    assert load_job(deployment, theirs).status == before


def test_name_of_another_tenants_file_is_not_told(
    deployment: Deployment, client: TestClient
) -> None:
    file = add_input(deployment, [request_line("a")], filename="secret.jsonl", tenant="research")
    job_id = create_job(deployment, file.id)
    for path in ("/", f"/jobs/{job_id}", "/?q=secret"):
        assert "secret.jsonl" not in client.get(path).text
    assert search(client, "secret") == []


SEARCHES = (
    ("nightly", True),
    ("NIGHTLY", True),
    ("tiny", True),
    ("suite-7", True),
    ("tiny suite-7", True),
    ("tiny suite-8", False),
    ("Zürich", True),
    ("%", False),
    ("_", True),
    ("nightly_arc", False),
    ("100%", False),
    ('"', False),
    ("nightly\0", True),
)


def test_search_finds_ids_files_models_and_metadata(
    deployment: Deployment, client: TestClient
) -> None:
    metadata = {"suite": "suite-7", "where": "Zürich"}
    job_id = start_job(
        deployment, [request_line("a")], filename="nightly arc.jsonl", metadata=metadata
    )
    assert search(client, job_id[:12]) == [job_id]
    for text, is_found in SEARCHES:
        assert search(client, text) == ([job_id] if is_found else []), text


def test_filter_keeps_the_search_and_the_other_way_round(
    deployment: Deployment, client: TestClient
) -> None:
    cancelled = create_job(deployment, metadata={"a": "night"})
    with deployment.database.write() as session:
        jobs.cancel(session, deployment.clock, cancelled)
    clock_of(deployment).advance(timedelta(seconds=1))
    validating = create_job(deployment, metadata={"a": "night"})
    create_job(deployment, metadata={"a": "day"})
    assert search(client, "night", status="open") == [validating, cancelled]
    assert search(client, "night", status="completed") == []
    page = client.get("/?q=night&status=open").text
    assert 'name="status" value="open"' in page
    assert 'href="/?status=expired&amp;q=night"' in page
    assert search(client, "night", status="no such") == [validating, cancelled]


def walk(client: TestClient, page: str, relation: str) -> list[list[str]]:
    """The jobs on the pages that follow, one after the other."""
    pages = []
    while (path := link(page, relation)) is not None:
        page = client.get(path).text
        pages.append(job_ids(page))
    return pages


def test_pages_have_every_job_once_there_and_back(
    deployment: Deployment, client: TestClient
) -> None:
    add_thousands(deployment, 2 * PAGE_JOBS + 1)
    with deployment.database.write() as session:  # some at the same moment
        for job in session.query(Job).limit(70):
            job.created_at = deployment.clock.now(session)
    first = client.get("/?q=suite").text
    there = [job_ids(first), *walk(client, first, "next")]
    seen = [job_id for page in there for job_id in page]
    assert [len(page) for page in there] == [PAGE_JOBS, PAGE_JOBS, 1]
    assert len(set(seen)) == len(seen)
    behind = link(first, "next")
    assert behind is not None
    last = client.get(link(client.get(behind).text, "next") or "").text
    assert walk(client, last, "prev") == [there[1], there[0]]


def test_page_behind_a_job_that_is_gone_is_the_same(
    deployment: Deployment, client: TestClient
) -> None:
    add_thousands(deployment, PAGE_JOBS + 5)
    page = client.get("/").text
    behind = link(page, "next")
    assert behind is not None
    expected = job_ids(client.get(behind).text)
    with deployment.database.write() as session:
        session.execute(delete(Job).where(Job.id == job_ids(page)[-1]))
    assert job_ids(client.get(behind).text) == expected


def test_place_that_is_none_is_the_beginning(deployment: Deployment, client: TestClient) -> None:
    job_id = create_job(deployment)
    for place in ("", "x", "1", "-", "1-", "9" * 400 + "-batch_1", "²-batch_1"):
        assert job_ids(client.get("/", params={"older": place}).text) == [job_id], place


def test_page_of_ten_thousand_jobs_is_quick(deployment: Deployment) -> None:
    made = populate(deployment)
    add_thousands(deployment, MANY)
    client = TestClient(create_app(deployment))
    lists = ("/", "/?status=cancelled", "/?q=suite-39", "/?q=no+such+words")
    answers = (f"/jobs/{made['failures']}/answers", f"/jobs/{made['failures']}/failed")
    one = (f"/jobs/{made['running']}", f"/jobs/{made['failures']}", *answers)
    # What other processes do meanwhile is not the page's; a database of its own is.
    now = time.process_time if deployment.database.is_embedded else time.perf_counter
    for path in (*lists, *one, "/workers", "/schedules", "/evals"):
        assert client.get(path).status_code == 200
        assert any(_seconds(client, path, now) < MAX_SECONDS for _ in range(40)), path


def _seconds(client: TestClient, path: str, now: Callable[[], float]) -> float:
    began = now()
    client.get(path, headers={"hx-request": "true"})
    return now() - began


def test_list_is_sent_alone_to_a_page_that_is_there(
    deployment: Deployment, client: TestClient
) -> None:
    job_id = create_job(deployment)
    whole = client.get("/")
    part = client.get("/", headers={"hx-request": "true"})
    assert part.text.strip().startswith('<div id="live"')
    assert "<html" in whole.text
    assert "<html" not in part.text
    assert job_ids(part.text) == [job_id]
    assert "HX-Request" in whole.headers["vary"]


def test_words_of_users_are_text(deployment: Deployment, client: TestClient) -> None:
    evil: dict[str, Any] = {
        "filename": '<script>alert(1)</script>".jsonl',
        "metadata": {"<img src=x>": '"><svg onload=alert(1)>'},
    }
    requests = [request_line("<b>id</b>", model="<i>model</i>")]
    job_id = start_job(deployment, requests, **evil)
    complete_all(deployment, job_id)
    for path in ("/", "/?q=<script>\"'", f"/jobs/{job_id}", f"/jobs/{job_id}/answers?q=<b>"):
        page = client.get(path).text
        assert not any(mark in page for mark in ("<script>", "<img", "<svg onload", "<b>", "<i>"))
    assert "&lt;b&gt;id&lt;/b&gt;" in client.get(f"/jobs/{job_id}/answers").text


def test_long_words_are_cut(deployment: Deployment, client: TestClient) -> None:
    requests = [request_line("i" * 400, model="m" * 400)]
    job_id = start_job(deployment, requests, filename="f" * 5000, metadata={"k" * 64: "v" * 512})
    complete_all(deployment, job_id)
    for path in ("/", f"/jobs/{job_id}", f"/jobs/{job_id}/answers"):
        page = client.get(path).text
        for letter, most in (("f", 300), ("m", 300), ("v", 300)):
            assert letter * (most + 1) not in page


def test_tokens_a_second_are_those_since_a_while_ago(
    deployment: Deployment, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("batchjobs.forecast.time.monotonic", lambda: now[0])
    job_id = start_job(deployment, [request_line(name) for name in "abcdefgh"], shard_max_lines=4)
    assert "0 / 8 – tok/s" in words(client.get("/").text)
    complete(deployment, must_claim(deployment, job_id=job_id))  # 4 lines of 15 tokens
    now[0] += 10
    assert "4 / 8 6.0 tok/s" in words(client.get("/").text)
    assert "Tokens/s 6.0" in words(client.get(f"/jobs/{job_id}").text)
    now[0] += 100
    assert "4 / 8 0 tok/s" in words(client.get("/").text)
