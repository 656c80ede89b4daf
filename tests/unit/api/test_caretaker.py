from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from batchjobs.api.app import create_app
from batchjobs.caretaker import Caretaker
from batchjobs.deployment import Deployment
from batchjobs.states import JobState
from tests.support.api import create, lines, upload
from tests.support.jobs import (
    clock_of,
    complete_all,
    create_job,
    load_job,
    request_line,
    start_job,
)

WAIT_SECONDS = 20


@contextmanager
def served(deployment: Deployment) -> Iterator[TestClient]:
    """With the application's lifespan, and so with its caretaker."""
    with TestClient(create_app(deployment)) as client:
        yield client


def wait_for(client: TestClient, batch_id: str, status: str) -> dict[str, Any]:
    """Follow the batch by its ETag until it has the status."""
    tag = '"unknown"'
    while True:
        reply = client.get(
            f"/v1/batches/{batch_id}?wait={WAIT_SECONDS}", headers={"if-none-match": tag}
        )
        assert reply.status_code == 200
        batch: dict[str, Any] = reply.json()
        if batch["status"] == status:
            return batch
        tag = reply.headers["etag"]


def test_new_batch_is_validated_without_a_worker(deployment: Deployment) -> None:
    with served(deployment) as client:
        batch_id = create(client, upload(client, lines(3))["id"])["id"]
        batch = wait_for(client, batch_id, "in_progress")
    assert batch["request_counts"] == {"total": 3, "completed": 0, "failed": 0}


def test_cancelled_batch_is_published_without_a_worker(deployment: Deployment) -> None:
    batch_id = start_job(deployment, [request_line("a")])
    with served(deployment) as client:
        client.post(f"/v1/batches/{batch_id}/cancel")
        assert wait_for(client, batch_id, "cancelled")["error_file_id"]


def test_what_an_earlier_server_left_is_done_at_start(deployment: Deployment) -> None:
    batch_id = create_job(deployment)
    with served(deployment) as client:
        wait_for(client, batch_id, "failed")


def test_job_that_cannot_be_published_does_not_hold_up_another(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = start_job(deployment, [request_line("a")])
    complete_all(deployment, damaged)
    for key in list(deployment.store.list(f"jobs/{damaged}/")):
        deployment.store.delete(key)
    fine = create_job(deployment)
    caretaker = Caretaker(deployment)
    with caplog.at_level(logging.ERROR):
        caretaker.look()
        caretaker.look()
    assert load_job(deployment, damaged).status == JobState.FINALIZING
    assert load_job(deployment, fine).status == JobState.FAILED
    assert [damaged in record.message for record in caplog.records] == [True]


def test_failure_of_any_kind_does_not_end_the_caretaker(
    deployment: Deployment, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()

    def fail(*_: Any) -> None:
        looked.set()
        raise RuntimeError("a bug")

    monkeypatch.setattr("batchjobs.caretaker.take_stock", fail)
    caretaker = Caretaker(deployment)
    with caplog.at_level(logging.ERROR), caretaker.running():
        assert looked.wait(WAIT_SECONDS)
        assert caretaker.is_running
    assert "a bug" in caplog.text
    assert not caretaker.is_running


def test_job_at_risk_is_warned_of_once_and_before_its_deadline(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = start_job(deployment, [request_line("a")])
    with caplog.at_level(logging.WARNING):
        Caretaker(deployment).look()
        assert caplog.records == []
        clock_of(deployment).advance(timedelta(hours=22))
        caretaker = Caretaker(deployment)
        caretaker.look()
        caretaker.look()
    [record] = caplog.records
    assert record.job_id == job_id  # type: ignore[attr-defined]
    assert "No live worker serves" in record.message


def test_expired_files_are_removed(deployment: Deployment) -> None:
    client = TestClient(create_app(deployment))
    fields = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
    upload(client, **fields)
    kept = upload(client)["id"]
    clock_of(deployment).advance(timedelta(hours=1))
    Caretaker(deployment).look()
    assert [file["id"] for file in client.get("/v1/files").json()["data"]] == [kept]


def test_workers_are_told_again_of_what_waits(deployment: Deployment) -> None:
    rung: list[list[str]] = []

    class Listening:
        def ring(self, models: Collection[str]) -> None:
            rung.append(sorted(models))

    start_job(deployment, [request_line("a"), request_line("b", model="other")])
    caretaker = Caretaker(replace(deployment, bell=Listening()))
    caretaker.look()
    caretaker.look()
    assert rung == [["other", "tiny"]]


def test_what_one_caretaker_is_at_another_leaves_alone(deployment: Deployment) -> None:
    job_id = create_job(deployment)
    with deployment.database.alone(job_id) as is_alone:
        assert is_alone
        Caretaker(deployment).look()
        assert load_job(deployment, job_id).status == JobState.VALIDATING
    Caretaker(deployment).look()
    assert load_job(deployment, job_id).status == JobState.FAILED
