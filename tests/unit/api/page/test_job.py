from __future__ import annotations

from datetime import timedelta

import pytest
from starlette.testclient import TestClient

from batchjobs.deployment import Deployment
from batchjobs.files import delete_file
from batchjobs.finalize import finalize
from batchjobs.intake import validate
from batchjobs.states import JobState
from tests.support.jobs import (
    add_input,
    answer,
    clock_of,
    complete_all,
    create_job,
    load_job,
    must_claim,
    request_line,
    start_job,
)
from tests.support.page import words
from tests.support.page_jobs import populate

REQUESTS = [request_line(f"line-{number}") for number in range(1, 5)]


@pytest.fixture
def running(deployment: Deployment) -> str:
    job_id = start_job(deployment, REQUESTS, filename="in.jsonl", completion_window="24h")
    answer(deployment, must_claim(deployment), failed={2})
    return job_id


@pytest.fixture
def ended(deployment: Deployment) -> str:
    job_id = start_job(deployment, REQUESTS, filename="in.jsonl")
    clock_of(deployment).advance(timedelta(seconds=100))
    complete_all(deployment, job_id, failed={2})
    finalize(deployment, job_id)
    return job_id


def test_job_that_runs_tells_how_far_it_is(client: TestClient, running: str) -> None:
    page = client.get(f"/jobs/{running}").text
    said = words(page)
    assert "50.0 % 2 of 4 requests · 1 failed" in said
    assert "Deadline in 1 d" in said
    assert "Answers 1 Failed lines 1" in said
    assert "Waiting. No live worker serves the model 'tiny'" in said
    assert 'data-every="2"' in page


def test_job_that_has_ended_says_what_computed_it(
    deployment: Deployment, client: TestClient
) -> None:
    job_id = start_job(deployment, REQUESTS)
    complete_all(deployment, job_id, fingerprint="fp_ab_int8")
    assert "Computed by" not in words(client.get(f"/jobs/{job_id}").text)
    finalize(deployment, job_id)
    assert "Computed by fp_ab_int8" in words(client.get(f"/jobs/{job_id}").text)


def test_job_that_has_ended_is_not_looked_at_again(client: TestClient, ended: str) -> None:
    page = client.get(f"/jobs/{ended}").text
    assert "data-every" not in page
    assert "Took 1 min 40 s Ended now" in words(page)


def test_timeline_tells_each_step_and_how_long_it_took(client: TestClient, ended: str) -> None:
    said = words(client.get(f"/jobs/{ended}").text)
    steps = said.partition("Timeline ")[2].partition(" Details")[0]
    assert steps == (
        "created 1 min ago validated after < 1 s 1 min ago"
        " finalizing after 1 min 40 s now completed after < 1 s now"
    )


def test_failed_lines_are_grouped_by_their_code(deployment: Deployment, client: TestClient) -> None:
    job_id = populate(deployment)["failures"]
    page = client.get(f"/jobs/{job_id}").text
    said = words(page)
    assert "14 × context_length_exceeded This model's maximum context length" in said
    assert "3 × invalid_value The parameter 'logit_bias'" in said
    assert said.index("14 ×") < said.index("3 ×")
    assert f"/jobs/{job_id}/failed?code=context_length_exceeded" in page


def test_failed_lines_of_a_running_job_are_grouped_too(client: TestClient, running: str) -> None:
    assert "1 × invalid_request_error The line is bad. line-2" in words(
        client.get(f"/jobs/{running}").text
    )


def test_lines_that_were_never_run_are_told_with_the_failed(
    deployment: Deployment, client: TestClient, running: str
) -> None:
    assert client.post(f"/jobs/{running}/cancel").status_code == 303
    finalize(deployment, running)
    said = words(client.get(f"/jobs/{running}").text)
    assert "2 × batch_cancelled This request was not executed" in said
    assert "Failed lines 3" in said


def test_problems_of_a_file_are_told_with_their_lines(
    deployment: Deployment, client: TestClient
) -> None:
    requests = [*REQUESTS, request_line("line-1"), request_line("b", model="nowhere")]
    job_id = create_job(deployment, add_input(deployment, requests).id)
    validate(deployment, job_id)
    said = words(client.get(f"/jobs/{job_id}").text)
    assert "nothing was run: 2 problems" in said
    assert "5 The custom ID for this request is a duplicate" in said
    assert "model_not_found" in said


def test_error_file_that_is_gone_is_told(
    deployment: Deployment, client: TestClient, ended: str
) -> None:
    error_file_id = load_job(deployment, ended).error_file_id
    assert error_file_id is not None
    delete_file(deployment, error_file_id)
    said = words(client.get(f"/jobs/{ended}").text)
    assert "1 line failed, but the file that says why has been deleted" in said


def test_cancel_asks_and_then_cancels(
    deployment: Deployment, client: TestClient, running: str
) -> None:
    question = client.get(f"/jobs/{running}/cancel").text
    assert "2 of 4 requests" in words(question)
    assert load_job(deployment, running).status == JobState.IN_PROGRESS
    reply = client.post(f"/jobs/{running}/cancel")
    assert (reply.status_code, reply.headers["location"]) == (303, f"/jobs/{running}")
    assert load_job(deployment, running).status == JobState.CANCELLING
    assert client.post(f"/jobs/{running}/cancel").status_code == 303


def test_job_that_has_ended_cannot_be_cancelled(client: TestClient, ended: str) -> None:
    page = client.get(f"/jobs/{ended}").text
    assert f"/jobs/{ended}/cancel" not in page
    reply = client.post(f"/jobs/{ended}/cancel")
    assert reply.status_code == 409
    assert "Cannot cancel a batch with status 'completed'." in words(reply.text)


def test_failed_lines_are_run_again_in_a_new_job(
    deployment: Deployment, client: TestClient, ended: str
) -> None:
    assert "the 1 line of in.jsonl that has no answer" in words(
        client.get(f"/jobs/{ended}/retry").text
    )
    reply = client.post(f"/jobs/{ended}/retry")
    assert reply.status_code == 303
    new = load_job(deployment, reply.headers["location"].removeprefix("/jobs/"))
    assert new.id != ended
    validate(deployment, new.id)
    assert load_job(deployment, new.id).total_lines == 1


ELSEWHERE: tuple[dict[str, str], ...] = (
    {"sec-fetch-site": "cross-site", "origin": "https://evil.example"},
    {"sec-fetch-site": "same-site", "origin": "http://other.testserver"},
    {"sec-fetch-site": "none"},
    {"origin": "https://evil.example"},
    {"origin": "http://testserver.evil.example"},
    {"origin": "null"},
    {"referer": "http://testserver/"},
)


def test_request_from_elsewhere_changes_nothing(
    deployment: Deployment, client: TestClient, running: str
) -> None:
    del client.headers["sec-fetch-site"]
    for headers in ELSEWHERE:
        for action in ("cancel", "retry"):
            reply = client.post(f"/jobs/{running}/{action}", headers=headers)
            assert reply.status_code == 403, headers
            assert "from the page itself" in reply.text
    assert load_job(deployment, running).status == JobState.IN_PROGRESS


def test_request_of_a_browser_that_sends_its_origin_only_is_taken(
    client: TestClient, running: str
) -> None:
    del client.headers["sec-fetch-site"]
    for origin in ("http://testserver", "https://testserver"):
        reply = client.post(f"/jobs/{running}/cancel", headers={"origin": origin})
        assert reply.status_code == 303, origin


def test_files_can_be_had(client: TestClient, ended: str) -> None:
    output = client.get(f"/jobs/{ended}/files/output")
    assert output.text.count("\n") == 3
    assert f"{ended}_output.jsonl" in output.headers["content-disposition"]
    assert client.get(f"/jobs/{ended}/files/error").text.count("\n") == 1
    assert client.get(f"/jobs/{ended}/files/input").text.count("\n") == 4
    part = client.get(f"/jobs/{ended}/files/output", headers={"range": "bytes=0-9"})
    assert (part.status_code, part.content) == (206, output.content[:10])
    assert client.get(f"/jobs/{ended}/files/plan").status_code == 404


def test_results_so_far_can_be_had(client: TestClient, running: str) -> None:
    reply = client.get(f"/jobs/{running}/files/so-far")
    assert reply.text.count("\n") == 2
    assert reply.headers["content-disposition"].startswith("attachment")
    assert client.get(f"/jobs/{running}/files/output").status_code == 404


def test_unknown_job_is_a_page_that_says_so(client: TestClient) -> None:
    reply = client.get("/jobs/batch_none")
    assert reply.status_code == 404
    assert "No batch found with id 'batch_none'." in words(reply.text)
    assert client.get("/jobs/batch_none/nonsense").status_code == 404


def test_failure_of_ours_is_a_page_that_tells_nothing_of_it(
    client: TestClient, running: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("/secret/path")

    monkeypatch.setattr("batchjobs.api.page.jobs.listing.find", fail)
    reply = client.get(f"/jobs/{running}")
    assert reply.status_code == 500
    assert reply.headers["x-request-id"] in reply.text
    assert "secret" not in reply.text
    assert "<html" in reply.text
