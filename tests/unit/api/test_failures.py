from __future__ import annotations

import logging
from typing import Any

import pytest
from starlette.testclient import TestClient

from batchjobs.deployment import Deployment
from batchjobs.errors import StoreError
from tests.support.api import lines


@pytest.mark.parametrize(
    ("method", "path", "status", "message", "code"),
    [
        ("GET", "/v1/threads", 404, "Invalid URL (GET /v1/threads)", None),
        ("GET", "/docs", 404, "Invalid URL (GET /docs)", None),
        ("PUT", "/v1/files", 405, "Not allowed to PUT on /v1/files.", "method_not_supported"),
    ],
)
def test_request_for_what_there_is_not_has_an_error_body(
    client: TestClient, method: str, path: str, status: int, message: str, code: str | None
) -> None:
    reply = client.request(method, path)
    assert reply.status_code == status
    assert reply.json() == {
        "error": {
            "message": message,
            "type": "invalid_request_error",
            "param": None,
            "code": code,
        }
    }


@pytest.mark.parametrize(
    "failure", [StoreError("No space on /srv/secret/place."), ZeroDivisionError("/srv/secret")]
)
def test_fault_of_ours_is_in_the_log_under_the_id_that_the_caller_gets(
    deployment: Deployment,
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
) -> None:
    def fail(*_: Any) -> Any:
        raise failure

    monkeypatch.setattr(type(deployment.store), "create", fail)
    with caplog.at_level(logging.ERROR):
        reply = client.post(
            "/v1/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", lines(1))}
        )
    assert reply.status_code == 500
    error = reply.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("server_error", None, None)
    assert "secret" not in reply.text
    request_id = error["message"].partition("request id ")[2].rstrip(").")
    assert [record.request_id for record in caplog.records] == [request_id]  # type: ignore[attr-defined]
    assert "secret" in caplog.text


def test_every_answer_has_an_id_of_its_own(client: TestClient) -> None:
    ids = {client.get(path).headers["x-request-id"] for path in ("/healthz", "/v1/models", "/x")}
    assert len(ids) == 3
