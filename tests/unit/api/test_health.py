from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from batchjobs.api.app import create_app
from batchjobs.deployment import Deployment
from batchjobs.errors import StoreError


def test_health_is_of_the_process_alone(client: TestClient) -> None:
    reply = client.get("/healthz")
    assert (reply.status_code, reply.json()) == (200, {"status": "ok"})


def test_server_is_ready_when_everything_answers(deployment: Deployment) -> None:
    with TestClient(create_app(deployment)) as client:
        reply = client.get("/readyz")
    assert (reply.status_code, reply.json()) == (
        200,
        {"status": "ok", "checks": {"database": "ok", "store": "ok", "caretaker": "ok"}},
    )


def test_server_is_not_ready_without_its_caretaker(client: TestClient) -> None:
    reply = client.get("/readyz")
    assert (reply.status_code, reply.json()["checks"]["caretaker"]) == (503, "failed")


def test_server_is_not_ready_without_its_store(
    deployment: Deployment, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(store: object, prefix: str) -> Iterator[str]:
        raise StoreError("The disk is gone.")

    monkeypatch.setattr(type(deployment.store), "list", fail)
    reply = client.get("/readyz")
    assert reply.status_code == 503
    assert (reply.json()["checks"]["store"], reply.json()["checks"]["database"]) == ("failed", "ok")
