from __future__ import annotations

from datetime import timedelta

import pytest
from starlette.testclient import TestClient

from batchjobs.api.page.workers import MAX_CHART_MODELS
from batchjobs.deployment import Deployment
from batchjobs.queue import samples
from tests.support.jobs import clock_of
from tests.support.page import sign_in, words
from tests.support.page_jobs import populate


def count(deployment: Deployment, model: str, tokens: int, worker: str = "worker-1") -> None:
    with deployment.database.write() as session:
        now = deployment.clock.now(session)
        samples.add(session, now, worker_id=worker, model=model, tokens=tokens)


def test_workers_are_told_with_what_they_do(deployment: Deployment, client: TestClient) -> None:
    populate(deployment)
    said = words(client.get("/workers").text)
    assert "Live workers 3 Tokens/s now 1,850 Running 99 Waiting 144" in said
    assert "gpu-node-a worker-0 · pid 4100 smollm2-1.7b-instruct" in said
    assert "96 144 72.8 % 1,843" in said
    assert "none loaded serves smollm2-1.7b-instruct, qwen3-8b 0 0 0.0 % idle" in said


def test_page_without_workers_says_how_to_start_one(client: TestClient) -> None:
    said = words(client.get("/workers").text)
    assert "No worker is live." in said
    assert "batchjobs worker" in said
    assert "Nothing was computed in the last hour." in said


def test_chart_has_each_minute_of_the_last_hour(deployment: Deployment, client: TestClient) -> None:
    count(deployment, "a", 600)
    count(deployment, "a", 600, worker="worker-2")
    clock_of(deployment).advance(timedelta(minutes=59))
    count(deployment, "b", 60)
    page = client.get("/workers").text
    assert page.count("data-at=") == 60
    assert page.count('data-value="20.00"') == 1
    assert page.count('data-value=""') == 2  # the minute has just begun
    clock_of(deployment).advance(timedelta(seconds=45))
    assert 'data-value="20.00"' in client.get("/workers").text
    assert 'data-value="1.20"' in client.get("/workers").text
    clock_of(deployment).advance(timedelta(minutes=1))
    assert 'data-value="20.00"' not in client.get("/workers").text


def test_chart_of_many_models_has_few_lines(deployment: Deployment, client: TestClient) -> None:
    for number in range(MAX_CHART_MODELS + 3):
        count(deployment, f"model-{number}", 6000 - 60 * number)
    clock_of(deployment).advance(timedelta(minutes=1))
    page = client.get("/workers").text
    assert page.count('class="num">model-') == MAX_CHART_MODELS
    assert "others" in words(page)
    assert f'data-value="{(5640 + 5580 + 5520) / 60:.2f}"' in page


@pytest.mark.parametrize(("tenant", "status"), [("default", 200), ("research", 404)])
def test_workers_are_the_operators(
    deployment: Deployment, closed: TestClient, tenant: str, status: int
) -> None:
    populate(deployment)
    sign_in(closed, deployment, tenant)
    reply = closed.get("/workers")
    assert reply.status_code == status
    assert ("gpu-node-a" in reply.text) == (status == 200)
    assert ('href="/workers"' in closed.get("/").text) == (status == 200)
