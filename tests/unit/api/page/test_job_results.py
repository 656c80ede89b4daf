from __future__ import annotations

import html
import re

import pytest
from starlette.testclient import TestClient

from batchjobs import browse
from batchjobs.api.page.job_results import PAGE_RESULTS
from batchjobs.deployment import Deployment
from batchjobs.files import delete_file
from batchjobs.finalize import finalize
from tests.support.jobs import (
    answer,
    complete,
    complete_all,
    load_job,
    must_claim,
    request_line,
    start_job,
)
from tests.support.page import link, words

COUNT = 2 * PAGE_RESULTS + 3


def ids(page: str) -> list[str]:
    return [html.unescape(each) for each in re.findall(r'<code class="id">([^<]+)</code>', page)]


def walk(client: TestClient, path: str | None) -> list[list[str]]:
    pages = []
    while path is not None:
        page = client.get(path).text
        pages.append(ids(page))
        path = link(page, "next")
    return pages


@pytest.fixture
def running(deployment: Deployment) -> str:
    requests = [request_line(f"line-{number:03}") for number in range(1, COUNT + 1)]
    job_id = start_job(deployment, requests, shard_max_lines=10)
    for _ in range(COUNT // 10):
        complete(deployment, must_claim(deployment), failed={5, 15, 25})
    return job_id


@pytest.fixture
def ended(deployment: Deployment, running: str) -> str:
    complete_all(deployment, running)
    finalize(deployment, running)
    return running


def test_pages_have_every_answer_once(client: TestClient, ended: str) -> None:
    pages = walk(client, f"/jobs/{ended}/answers")
    assert [len(page) for page in pages] == [PAGE_RESULTS, PAGE_RESULTS]
    seen = [each for page in pages for each in page]
    expected = [f"line-{number:03}" for number in range(1, COUNT + 1)]
    assert seen == [each for each in expected if each not in ("line-005", "line-015", "line-025")]


def test_pages_of_a_running_job_have_every_answer_so_far(client: TestClient, running: str) -> None:
    pages = walk(client, f"/jobs/{running}/answers")
    assert [len(page) for page in pages] == [PAGE_RESULTS, COUNT // 10 * 10 - 3 - PAGE_RESULTS]
    seen = [each for page in pages for each in page]
    assert len(set(seen)) == len(seen)
    assert ids(client.get(f"/jobs/{running}/failed").text) == ["line-005", "line-015", "line-025"]


@pytest.mark.parametrize("kind", ["running", "ended"])
def test_search_finds_words_of_answers_and_ids(
    client: TestClient, request: pytest.FixtureRequest, kind: str
) -> None:
    job_id = request.getfixturevalue(kind)
    path = f"/jobs/{job_id}/answers"
    assert ids(client.get(f"{path}?q=TO+LINE-007").text) == ["line-007"]
    assert ids(client.get(f"{path}?q=line-04").text) == [f"line-04{digit}" for digit in range(10)]
    nothing = client.get(f"{path}?q=no+such+words").text
    assert (ids(nothing), link(nothing, "next")) == ([], None)
    assert "Nothing found." in words(nothing)


def test_search_goes_on_where_it_ended(
    client: TestClient, ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browse, "PAGE_BYTES", 2000)
    page = client.get(f"/jobs/{ended}/answers?q=line-050").text
    assert "Nothing found in" in words(page)
    pages = walk(client, f"/jobs/{ended}/answers?q=line-050")
    assert [each for found in pages for each in found] == ["line-050"]
    assert len(pages) > 2


def test_parts_of_a_running_job_are_read_a_few_at_a_time(
    client: TestClient, running: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = [each for page in walk(client, f"/jobs/{running}/answers") for each in page]
    monkeypatch.setattr(browse, "MAX_PARTS", 2)
    few = walk(client, f"/jobs/{running}/answers")
    assert [each for page in few for each in page] == everything


def test_failed_lines_of_one_code_are_shown(
    deployment: Deployment, client: TestClient, ended: str
) -> None:
    page = client.get(f"/jobs/{ended}/failed?code=invalid_request_error").text
    assert ids(page) == ["line-005", "line-015", "line-025"]
    assert "The line is bad." in page
    assert ids(client.get(f"/jobs/{ended}/failed?code=batch_expired").text) == []


def test_answers_that_are_gone_are_told(
    deployment: Deployment, client: TestClient, ended: str
) -> None:
    output_file_id = load_job(deployment, ended).output_file_id
    assert output_file_id is not None
    delete_file(deployment, output_file_id)
    page = client.get(f"/jobs/{ended}/answers")
    assert page.status_code == 200
    assert "The file with these lines has been deleted." in page.text


def test_parts_that_go_while_they_are_read_are_told(
    deployment: Deployment, client: TestClient, running: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in list(deployment.store.list("jobs/")):
        deployment.store.delete(key)
    page = client.get(f"/jobs/{running}/answers")
    assert page.status_code == 200
    assert "The job has just ended" in page.text
    assert client.get(f"/jobs/{running}").status_code == 200


def test_place_that_is_none_does_no_harm(client: TestClient, ended: str) -> None:
    for place in ("x", "0", "-1.2", "0.999999", "9.9", "1." + "9" * 400, "²."):
        reply = client.get(f"/jobs/{ended}/answers", params={"from": place})
        assert reply.status_code == 200, place


def test_result_that_is_too_long_is_told_and_the_others_shown(
    deployment: Deployment, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = start_job(deployment, [request_line(name) for name in ("a", "b" * 500, "c")])
    complete_all(deployment, job_id)
    finalize(deployment, job_id)
    monkeypatch.setattr(browse, "LONGEST_LINE_BYTES", 600)
    page = client.get(f"/jobs/{job_id}/answers").text
    assert ids(page) == ["a", "(too long to show)", "c"]


def test_job_without_answers_says_why(deployment: Deployment, client: TestClient) -> None:
    job_id = start_job(deployment, [request_line("a"), request_line("b")])
    assert "No answers yet." in client.get(f"/jobs/{job_id}/answers").text
    assert "No line has failed so far." in client.get(f"/jobs/{job_id}/failed").text
    answer(deployment, must_claim(deployment), failed={1, 2}, lines={1, 2})
    assert "No answers yet." in client.get(f"/jobs/{job_id}/answers").text
