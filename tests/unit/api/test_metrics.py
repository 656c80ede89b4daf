from __future__ import annotations

from starlette.testclient import TestClient

from batchjobs.deployment import Deployment
from tests.support.jobs import START, create_job, must_claim, request_line, start_job


def samples(client: TestClient) -> dict[str, float]:
    reply = client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    rows = [row.rpartition(" ") for row in reply.text.splitlines() if not row.startswith("#")]
    return {name: float(value) for name, _, value in rows}


def test_empty_queue_has_zeros_and_no_deadline(client: TestClient) -> None:
    found = samples(client)
    assert found['batchjobs_jobs{status="in_progress"}'] == 0
    assert set(found.values()) == {0}


def test_jobs_lines_and_the_nearest_deadline_are_counted(
    deployment: Deployment, client: TestClient
) -> None:
    create_job(deployment, completion_window="48h")
    requests = [request_line(str(number), model='a"b') for number in range(5)]
    start_job(deployment, requests, shard_max_lines=2)
    must_claim(deployment)
    found = samples(client)
    assert found['batchjobs_jobs{status="validating"}'] == 1
    assert found['batchjobs_jobs{status="in_progress"}'] == 1
    assert found['batchjobs_queued_lines{model="a\\"b"}'] == 3
    assert found['batchjobs_running_lines{model="a\\"b"}'] == 2
    deadline = found["batchjobs_nearest_deadline_timestamp_seconds"]
    assert deadline == START.timestamp() + 24 * 3600
