from __future__ import annotations

from datetime import timedelta

from starlette.testclient import TestClient

from batchjobs.deployment import Deployment
from batchjobs.queue import workers
from batchjobs.queue.workers import Condition, Identity
from batchjobs.worker.tending import take_stock
from tests.support.jobs import (
    MODEL,
    START,
    clock_of,
    create_job,
    must_claim,
    request_line,
    start_job,
)


def samples(client: TestClient) -> dict[str, float]:
    reply = client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    rows = [row.rpartition(" ") for row in reply.text.splitlines() if not row.startswith("#")]
    return {name: float(value) for name, _, value in rows}


def test_empty_queue_has_zeros_and_no_deadline(client: TestClient) -> None:
    found = samples(client)
    assert found['batchjobs_jobs{status="in_progress"}'] == 0
    queue = {name: value for name, value in found.items() if "lease_rescues" not in name}
    assert set(queue.values()) == {0}


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


def test_jobs_that_will_not_end_in_time_are_counted_before(
    deployment: Deployment, client: TestClient
) -> None:
    start_job(deployment, [request_line("a")])
    start_job(deployment, [request_line("a")], completion_window="48h")
    clock_of(deployment).advance(timedelta(hours=22))
    found = samples(client)
    assert found["batchjobs_jobs_at_risk"] == 1
    assert found["batchjobs_jobs_unserved"] == 2


def test_live_workers_are_counted_by_the_model_they_have_loaded(
    deployment: Deployment, client: TestClient
) -> None:
    with deployment.database.write() as session:
        for name, model in (("a", MODEL), ("b", MODEL), ("c", None)):
            who = Identity(id=name, host="h", pid=1, models=None, job_id=None)
            condition = Condition(loaded_model=model)
            workers.report(session, deployment.clock, who, condition)
    found = samples(client)
    assert found[f'batchjobs_live_workers{{model="{MODEL}"}}'] == 2
    assert found['batchjobs_live_workers{model=""}'] == 1
    clock_of(deployment).advance(timedelta(hours=1))
    assert not any(name.startswith("batchjobs_live_workers") for name in samples(client))


def test_rescues_of_shards_are_counted(deployment: Deployment, client: TestClient) -> None:
    start_job(deployment, [request_line("a")])
    must_claim(deployment, owner="dead")
    before = samples(client)["batchjobs_lease_rescues_total"]
    take_stock(deployment)
    take_stock(deployment)
    assert samples(client)["batchjobs_lease_rescues_total"] == before + 1


def test_requests_are_counted_by_route_and_not_by_url(client: TestClient) -> None:
    for path in ("/v1/batches/a", "/v1/batches/b", "/v1/batches", "/nowhere", "/no/where"):
        client.get(path)
    client.request("BREW", "/v1/batches")
    requests = "batchjobs_http_requests_total"
    found = {name: value for name, value in samples(client).items() if name.startswith(requests)}
    assert found == {
        f'{requests}{{method="GET",route="/v1/batches/{{batch_id}}",status="404"}}': 2,
        f'{requests}{{method="GET",route="/v1/batches",status="200"}}': 1,
        f'{requests}{{method="GET",route="none",status="404"}}': 2,
        f'{requests}{{method="other",route="/v1/batches",status="405"}}': 1,
    }


def test_requests_are_timed_unless_they_ask_to_wait(
    deployment: Deployment, client: TestClient
) -> None:
    url = f"/v1/batches/{create_job(deployment)}"
    client.get(url)
    client.get(f"{url}?wait=1")
    count = "batchjobs_http_request_duration_seconds_count"
    assert samples(client)[f'{count}{{method="GET",route="/v1/batches/{{batch_id}}"}}'] == 1
