"""The API on each kind of database: what it writes, lists, and is asked for by odd names."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from batchjobs.api.app import create_app
from batchjobs.deployment import Deployment
from batchjobs.finalize import finalize
from batchjobs.worker.tending import tend
from tests.support.api import create, lines, upload
from tests.support.engines import add_models
from tests.support.jobs import MODEL, clock_of, complete_all, open_deployment


@pytest.fixture
def deployment(tmp_path: Path, database_url: str | None) -> Iterator[Deployment]:
    with open_deployment(tmp_path, database_url=database_url) as opened:
        add_models(opened, MODEL)
        yield opened


@pytest.fixture
def client(deployment: Deployment) -> TestClient:
    return TestClient(create_app(deployment))


def test_a_batch_from_upload_to_results_and_deletion(
    deployment: Deployment, client: TestClient
) -> None:
    file_id = upload(client, lines(3))["id"]
    batch_id = create(client, file_id, metadata={"k": "v\0"})["id"]
    tend(deployment)
    assert f'batchjobs_queued_lines{{model="{MODEL}"}} 3' in client.get("/metrics").text
    assert client.delete(f"/v1/files/{file_id}").status_code == 409
    complete_all(deployment, batch_id, failed=(2,))
    finalize(deployment, batch_id)
    batch = client.get(f"/v1/batches/{batch_id}").json()
    assert (batch["status"], batch["metadata"]) == ("completed", {"k": "v\0"})
    assert batch["request_counts"] == {"total": 3, "completed": 2, "failed": 1}
    assert len(client.get(f"/v1/batches/{batch_id}/results").content.splitlines()) == 3
    again = client.post(f"/v1/batches/{batch_id}/retry").json()
    tend(deployment)
    assert client.delete(f"/v1/batches/{again['id']}").status_code == 409
    client.post(f"/v1/batches/{again['id']}/cancel")
    tend(deployment)
    assert client.delete(f"/v1/batches/{again['id']}").status_code == 200
    assert [one["id"] for one in client.get("/v1/batches").json()["data"]] == [batch_id]
    for listed in [one["id"] for one in client.get("/v1/files").json()["data"]]:
        assert client.delete(f"/v1/files/{listed}").status_code == 200
    assert client.get("/v1/files").json()["data"] == []
    assert client.get(f"/v1/batches/{batch_id}/results").status_code == 404


def test_pages_have_everything_once(deployment: Deployment, client: TestClient) -> None:
    made = []
    for _ in range(5):
        made.append(create(client, upload(client)["id"])["id"])
        clock_of(deployment).advance(timedelta(microseconds=1))
    for route in ("files", "batches"):
        found: list[str] = []
        page = {"has_more": True}
        while page["has_more"]:
            after = {"after": found[-1]} if found else {}
            page = client.get(f"/v1/{route}", params={"limit": 2, **after}).json()
            found += [item["id"] for item in page["data"]]
        assert len(found) == len(set(found)) == 5
    assert found == made[::-1]


@pytest.mark.parametrize("name", ["a%00b", "x" * 500, "%ED%A0%80", "é"])
def test_names_that_no_database_holds_are_unknown(client: TestClient, name: str) -> None:
    for url in (f"/v1/files/{name}", f"/v1/batches/{name}", f"/v1/models/{name}"):
        assert client.get(url).status_code == 404
    for route in ("files", "batches"):
        assert client.get(f"/v1/{route}?after={name}").status_code == 404


def test_one_of_many_requests_of_a_key_makes_the_batch(client: TestClient) -> None:
    asked = {
        "input_file_id": "file-1",
        "endpoint": "/v1/completions",
        "completion_window": "24h",
    }
    barrier = threading.Barrier(6)

    def send(_: int) -> str:
        barrier.wait()
        reply = client.post("/v1/batches", json=asked, headers={"idempotency-key": "same"})
        batch_id: str = reply.json()["id"]
        return batch_id

    with ThreadPoolExecutor(6) as senders:
        assert len(set(senders.map(send, range(6)))) == 1
    assert len(client.get("/v1/batches").json()["data"]) == 1
