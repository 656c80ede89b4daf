from __future__ import annotations

import json
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from batchjobs import catalogue
from batchjobs.deployment import Deployment
from batchjobs.finalize import finalize
from batchjobs.models import File
from batchjobs.queue import jobs, workers
from batchjobs.queue.workers import Condition, Identity
from batchjobs.worker.tending import tend
from tests.support.api import create, jsonl, lines, upload
from tests.support.engines import add_models
from tests.support.jobs import (
    ENDPOINT,
    MODEL,
    START,
    answer,
    clock_of,
    complete,
    complete_all,
    create_job,
    load_job,
    must_claim,
    request_line,
    start_job,
)

START_SECONDS = int(START.timestamp())
GOOD = {"endpoint": ENDPOINT, "completion_window": "24h", "input_file_id": "file-1"}
UNKNOWN = "batch_" + "0" * 32


def error_of(reply: Any) -> dict[str, Any]:
    error: dict[str, Any] = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    return error


def test_created_batch_is_validating(client: TestClient) -> None:
    file_id = upload(client)["id"]
    batch = create(client, file_id, metadata={"a": "b"})
    assert batch == {
        "id": batch["id"],
        "object": "batch",
        "endpoint": ENDPOINT,
        "model": None,
        "errors": None,
        "input_file_id": file_id,
        "completion_window": "24h",
        "status": "validating",
        "output_file_id": None,
        "error_file_id": None,
        "created_at": START_SECONDS,
        "in_progress_at": None,
        "expires_at": START_SECONDS + 86400,
        "finalizing_at": None,
        "completed_at": None,
        "failed_at": None,
        "expired_at": None,
        "cancelling_at": None,
        "cancelled_at": None,
        "request_counts": {"total": 0, "completed": 0, "failed": 0},
        "usage": None,
        "metadata": {"a": "b"},
        "deadline": START_SECONDS + 86400,
        "eta": None,
        "at_risk": False,
        "notice": None,
        "models": [],
        "cached_tokens": 0,
        "priority": 0,
        "system_fingerprints": None,
    }
    assert client.get(f"/v1/batches/{batch['id']}").json() == batch


def test_batch_of_a_missing_file_is_created_and_fails(
    deployment: Deployment, client: TestClient
) -> None:
    batch = create(client, "file-nonexistent")
    assert batch["status"] == "validating"
    tend(deployment)
    failed = client.get(f"/v1/batches/{batch['id']}").json()
    assert failed["status"] == "failed"
    [problem] = failed["errors"]["data"]
    assert (problem["code"], problem["param"], problem["line"]) == (
        "invalid_request",
        "file_id",
        None,
    )


def test_model_and_seed_are_those_of_the_batch(deployment: Deployment, client: TestClient) -> None:
    """Extensions: they are what `submit --model --seed` asks for."""
    file_id = upload(client, lines(1, model="of-someone-else"))["id"]
    batch = create(client, file_id, model=MODEL, seed=2**63 - 1)
    tend(deployment)
    started = client.get(f"/v1/batches/{batch['id']}").json()
    assert (started["status"], started["model"]) == ("in_progress", MODEL)
    assert load_job(deployment, batch["id"]).seed == 2**63 - 1


def test_repeated_request_gets_its_batch_after_its_model_has_left(
    deployment: Deployment, client: TestClient
) -> None:
    asked = {**GOOD, "model": MODEL}
    headers = {"idempotency-key": "once"}
    first = client.post("/v1/batches", json=asked, headers=headers).json()
    with deployment.database.write() as session:
        catalogue.remove(session, MODEL)
    assert client.post("/v1/batches", json=asked, headers=headers).json()["id"] == first["id"]


def test_models_of_a_file_that_names_several_are_all_shown(
    deployment: Deployment, client: TestClient
) -> None:
    add_models(deployment, "other")
    several = [request_line("a"), request_line("b", model="other")]
    batch = create(client, upload(client, jsonl(*several))["id"])
    tend(deployment)
    started = client.get(f"/v1/batches/{batch['id']}").json()
    assert (started["model"], started["models"]) == (None, [MODEL, "other"])


def test_batch_whose_file_is_deleted_while_it_is_read_fails(
    deployment: Deployment, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = upload(client)
    batch = create(client, file["id"])
    whole = deployment.store.open

    def open_and_lose(key: str, **options: Any) -> Any:
        with deployment.database.write() as session:
            session.delete(session.get(File, file["id"]))
        return whole(key, **options)

    monkeypatch.setattr(type(deployment.store), "open", lambda _, key, **o: open_and_lose(key, **o))
    tend(deployment)
    failed = client.get(f"/v1/batches/{batch['id']}").json()
    assert (failed["status"], failed["errors"]["data"][0]["param"]) == ("failed", "file_id")


def test_every_bad_line_is_an_error_of_the_batch(
    deployment: Deployment, client: TestClient
) -> None:
    bad = [{"custom_id": "a"}, request_line("b"), request_line("c", model="none")]
    batch = create(client, upload(client, jsonl(*bad))["id"])
    tend(deployment)
    errors = client.get(f"/v1/batches/{batch['id']}").json()["errors"]
    assert errors["object"] == "list"
    assert [(problem["line"], problem["code"]) for problem in errors["data"]] == [
        (1, "missing_required_parameter"),
        (3, "model_not_found"),
    ]


@pytest.mark.parametrize(
    ("changes", "param", "code"),
    [
        ({"input_file_id": None}, "input_file_id", "missing_required_parameter"),
        ({"input_file_id": 7}, "input_file_id", "invalid_type"),
        ({"input_file_id": "x" * 65}, "input_file_id", "invalid_value"),
        ({"input_file_id": "a\0"}, "input_file_id", "invalid_value"),
        ({"input_file_id": ""}, "input_file_id", "invalid_value"),
        ({"endpoint": None}, "endpoint", "missing_required_parameter"),
        ({"endpoint": "/v1/moderations"}, "endpoint", "invalid_value"),
        ({"completion_window": None}, "completion_window", "missing_required_parameter"),
        ({"completion_window": "soon"}, "completion_window", "invalid_value"),
        ({"completion_window": 24}, "completion_window", "invalid_type"),
        ({"metadata": ["a"]}, "metadata", "invalid_type"),
        ({"metadata": {"tags": ["a"]}}, "metadata.tags", "invalid_type"),
        ({"metadata": {"k": "v" * 513}}, "metadata.k", "string_above_max_length"),
        ({"model": "none"}, "model", "model_not_found"),
        ({"model": ["tiny"]}, "model", "invalid_type"),
        ({"seed": "1"}, "seed", "invalid_type"),
        ({"seed": -1}, "seed", "integer_below_min_value"),
        ({"seed": 2**63}, "seed", "integer_above_max_value"),
        ({"modle": "x"}, "modle", "unknown_parameter"),
        ({"output_expires_after": 3600}, "output_expires_after", "invalid_type"),
        (
            {"output_expires_after": {"anchor": "created_at", "seconds": 60}},
            "output_expires_after.seconds",
            "integer_below_min_value",
        ),
        (
            {"output_expires_after": {"anchor": "created_at", "second": 3600}},
            "output_expires_after.second",
            "unknown_parameter",
        ),
    ],
)
def test_wrong_create_parameter_is_400(
    client: TestClient, changes: dict[str, Any], param: str, code: str
) -> None:
    reply = client.post("/v1/batches", json=GOOD | changes)
    assert reply.status_code == 400
    assert (error_of(reply)["param"], error_of(reply)["code"]) == (param, code)
    assert client.get("/v1/batches").json()["data"] == []


def test_wrong_endpoint_is_told_in_the_public_words(client: TestClient) -> None:
    reply = client.post("/v1/batches", json=GOOD | {"endpoint": "/v1/invalid"})
    assert error_of(reply)["message"] == (
        "Invalid value: '/v1/invalid'."
        " Supported values are: '/v1/chat/completions', '/v1/completions', '/v1/embeddings', and"
        " '/v1/responses'."
    )


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff"])
def test_body_that_is_no_object_is_400(client: TestClient, body: bytes) -> None:
    reply = client.post("/v1/batches", content=body)
    assert reply.status_code == 400
    assert error_of(reply)["message"].startswith("We could not parse the JSON body")


def test_giant_body_is_413(client: TestClient) -> None:
    reply = client.post("/v1/batches", content=b" " * ((1 << 20) + 1))
    assert reply.status_code == 413
    assert error_of(reply)["message"]


def test_result_files_expire_when_they_are_asked_to(
    deployment: Deployment, client: TestClient
) -> None:
    expiry = {"anchor": "created_at", "seconds": 7200}
    batch = create(client, upload(client, lines(2))["id"], output_expires_after=expiry)
    tend(deployment)
    complete_all(deployment, batch["id"], failed=(2,))
    clock_of(deployment).advance(timedelta(seconds=500))
    finalize(deployment, batch["id"])
    batch = client.get(f"/v1/batches/{batch['id']}").json()
    for file_id in (batch["output_file_id"], batch["error_file_id"]):
        file = client.get(f"/v1/files/{file_id}").json()
        assert file["expires_at"] == file["created_at"] + 7200 == START_SECONDS + 500 + 7200


def test_request_that_is_sent_again_makes_no_second_batch(
    deployment: Deployment, client: TestClient
) -> None:
    headers = {"idempotency-key": "first try"}
    first = client.post("/v1/batches", json=GOOD, headers=headers).json()
    tend(deployment)
    again = client.post("/v1/batches", json=dict(reversed(GOOD.items())), headers=headers)
    assert (again.json()["id"], again.json()["status"]) == (first["id"], "failed")
    other = client.post("/v1/batches", json=GOOD, headers={"idempotency-key": "second try"})
    without = client.post("/v1/batches", json=GOOD)
    assert len({first["id"], other.json()["id"], without.json()["id"]}) == 3


def test_key_of_another_request_is_409(client: TestClient) -> None:
    headers = {"idempotency-key": "k"}
    client.post("/v1/batches", json=GOOD, headers=headers)
    reply = client.post("/v1/batches", json=GOOD | {"metadata": {"a": "b"}}, headers=headers)
    assert (reply.status_code, error_of(reply)["code"]) == (409, "idempotency_key_reused")
    assert len(client.get("/v1/batches").json()["data"]) == 1


@pytest.mark.parametrize("key", ["", "k" * 256])
def test_unusable_key_is_400(client: TestClient, key: str) -> None:
    reply = client.post("/v1/batches", json=GOOD, headers={"idempotency-key": key})
    assert (reply.status_code, error_of(reply)["param"]) == (400, "Idempotency-Key")


@pytest.mark.parametrize("metadata", [None, {}])
def test_metadata_may_be_empty(client: TestClient, metadata: Any) -> None:
    assert create(client, "file-1", metadata=metadata)["metadata"] == metadata


@pytest.mark.parametrize("batch_id", [UNKNOWN, "batch_1", "a%00b"])
def test_unknown_batch_is_404(client: TestClient, batch_id: str) -> None:
    for reply in (
        client.get(f"/v1/batches/{batch_id}"),
        client.post(f"/v1/batches/{batch_id}/cancel"),
        client.get(f"/v1/batches/{batch_id}/results"),
    ):
        assert reply.status_code == 404
        error = error_of(reply)
        assert error["message"].startswith("No batch found with id '")
        assert (error["param"], error["code"]) == (None, None)


def test_cancel_with_an_empty_json_body_is_done_and_may_be_repeated(
    deployment: Deployment, client: TestClient
) -> None:
    batch_id = start_job(deployment, [request_line("a")])
    for _ in range(2):
        reply = client.post(
            f"/v1/batches/{batch_id}/cancel", headers={"content-type": "application/json"}
        )
        assert (reply.status_code, reply.json()["status"]) == (200, "cancelling")
        assert reply.json()["cancelling_at"] == START_SECONDS
    tend(deployment)
    assert client.get(f"/v1/batches/{batch_id}").json()["status"] == "cancelled"
    assert client.post(f"/v1/batches/{batch_id}/cancel").json()["status"] == "cancelled"


def test_cancel_of_an_ended_batch_is_409(deployment: Deployment, client: TestClient) -> None:
    batch_id = start_job(deployment, [request_line("a")])
    complete_all(deployment, batch_id)
    finalize(deployment, batch_id)
    reply = client.post(f"/v1/batches/{batch_id}/cancel")
    assert reply.status_code == 409
    assert error_of(reply)["message"] == "Cannot cancel a batch with status 'completed'."


def test_running_batch_counts_what_is_finished(deployment: Deployment, client: TestClient) -> None:
    batch_id = start_job(deployment, [request_line(f"{n}") for n in range(4)], shard_max_lines=4)
    answer(deployment, must_claim(deployment), lines=(1, 2, 3), failed=(2,))
    batch = client.get(f"/v1/batches/{batch_id}").json()
    assert batch["request_counts"] == {"total": 4, "completed": 2, "failed": 1}
    assert batch["usage"]["total_tokens"] == 45


def listed(client: TestClient, **query: Any) -> tuple[list[str], bool]:
    page = client.get("/v1/batches", params=query).json()
    ids = [batch["id"] for batch in page["data"]]
    assert page["last_id"] == (ids[-1] if ids else None)
    return ids, page["has_more"]


def test_pages_are_newest_first_and_have_every_batch_once(
    deployment: Deployment, client: TestClient
) -> None:
    made = []
    for _ in range(5):
        made.append(create_job(deployment))
        clock_of(deployment).advance(timedelta(seconds=1))
    newest_first = made[::-1]
    assert listed(client) == (newest_first, False)
    assert listed(client, limit=2) == (newest_first[:2], True)
    assert listed(client, limit=2, after=newest_first[1]) == (newest_first[2:4], True)
    assert listed(client, limit=2, after=newest_first[3]) == (newest_first[4:], False)
    assert listed(client, limit=0) == ([], False)


def test_default_page_has_20(deployment: Deployment, client: TestClient) -> None:
    for _ in range(21):
        create_job(deployment)
    ids, has_more = listed(client)
    assert (len(ids), has_more) == (20, True)


def test_limit_above_100_is_told_in_the_public_words(client: TestClient) -> None:
    reply = client.get("/v1/batches", params={"limit": 101})
    assert reply.status_code == 400
    assert reply.json()["error"] == {
        "message": "Invalid 'limit': integer above maximum value."
        " Expected a value <= 100, but got 101 instead.",
        "type": "invalid_request_error",
        "param": "limit",
        "code": "integer_above_max_value",
    }


@pytest.mark.parametrize("after", [UNKNOWN, "a\0"])
def test_page_behind_an_unknown_batch_is_404(client: TestClient, after: str) -> None:
    assert client.get("/v1/batches", params={"after": after}).status_code == 404


def test_unchanged_batch_is_304(deployment: Deployment, client: TestClient) -> None:
    url = f"/v1/batches/{create(client, 'file-1')['id']}"
    tag = client.get(url).headers["etag"]
    same = client.get(url, headers={"if-none-match": tag})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert client.get(url, headers={"if-none-match": f"W/{tag}"}).status_code == 304
    tend(deployment)
    changed = client.get(url, headers={"if-none-match": tag})
    assert (changed.status_code, changed.json()["status"]) == (200, "failed")
    assert changed.headers["etag"] != tag


def work(deployment: Deployment, rate: float | None) -> None:
    """A worker that has the model loaded says how fast it is."""
    who = Identity(id="w", host="h", pid=1, models=None, job_id=None)
    condition = Condition(loaded_model=MODEL, tokens_per_second=rate)
    with deployment.database.write() as session:
        workers.report(session, deployment.clock, who, condition)


def test_eta_moves_without_making_news_and_risk_is_news(
    deployment: Deployment, client: TestClient
) -> None:
    job_id = start_job(deployment, [request_line(str(number)) for number in range(4)])
    complete(deployment, must_claim(deployment))
    url = f"/v1/batches/{job_id}"
    unserved = client.get(url)
    assert "No live worker serves the model 'tiny'" in unserved.json()["notice"]
    work(deployment, 1)
    served = client.get(f"{url}?wait=60", headers={"if-none-match": unserved.headers["etag"]})
    assert (served.status_code, served.json()["notice"]) == (200, None)
    assert served.json()["eta"] > START_SECONDS
    tag = served.headers["etag"]
    work(deployment, 0.5)
    deadline = time.monotonic() + 20
    while client.get(url).json()["eta"] == served.json()["eta"]:
        assert time.monotonic() < deadline
    assert client.get(url, headers={"if-none-match": tag}).status_code == 304
    assert client.get("/v1/batches").json()["data"] == [client.get(url).json()]
    work(deployment, 0.0001)
    risky = client.get(f"{url}?wait=60", headers={"if-none-match": tag})
    assert (risky.status_code, risky.json()["at_risk"]) == (200, True)
    assert risky.json()["eta"] > risky.json()["deadline"]


def test_waiting_for_an_ended_batch_answers_at_once(
    deployment: Deployment, client: TestClient
) -> None:
    batch_id = create(client, "file-1")["id"]
    tend(deployment)
    assert client.get(f"/v1/batches/{batch_id}?wait=60").json()["status"] == "failed"


@pytest.mark.parametrize("knows_it", [True, False])
def test_waiting_answers_when_the_batch_has_changed(
    deployment: Deployment, client: TestClient, knows_it: bool
) -> None:
    url = f"/v1/batches/{create(client, 'file-1')['id']}"
    headers = {"if-none-match": client.get(url).headers["etag"]} if knows_it else {}
    threading.Timer(0.1, tend, (deployment,)).start()
    reply = client.get(f"{url}?wait=60", headers=headers)
    assert (reply.status_code, reply.json()["status"]) == (200, "failed")


def test_waiting_in_vain_answers_with_what_there_is(client: TestClient) -> None:
    url = f"/v1/batches/{create(client, 'file-1')['id']}"
    first = client.get(f"{url}?wait=1")
    assert (first.status_code, first.json()["status"]) == (200, "validating")
    again = client.get(f"{url}?wait=1", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304


def test_longer_wait_than_allowed_is_400(client: TestClient) -> None:
    reply = client.get(f"/v1/batches/{UNKNOWN}?wait=61")
    assert (reply.status_code, error_of(reply)["param"]) == (400, "wait")


def custom_ids(reply: Any) -> list[str]:
    return [json.loads(line)["custom_id"] for line in reply.content.splitlines()]


def test_results_come_while_the_job_runs_and_after(
    deployment: Deployment, client: TestClient
) -> None:
    batch_id = create(client, upload(client, lines(4))["id"])["id"]
    tend(deployment)
    answer(deployment, must_claim(deployment), lines=(1, 2, 4))
    url = f"/v1/batches/{batch_id}/results"
    running = client.get(url)
    assert custom_ids(running) == ["line-1", "line-2", "line-4"]
    assert (running.headers["x-incomplete"], running.headers["x-last-line"]) == ("true", "2")
    with deployment.database.write() as session:
        jobs.cancel(session, deployment.clock, batch_id)
    finalize(deployment, batch_id)
    rest = client.get(url, params={"offset": running.headers["x-last-line"]})
    assert custom_ids(rest) == ["line-3", "line-4"]
    assert (rest.headers["x-incomplete"], rest.headers["x-last-line"]) == ("false", "4")


def test_deleted_batch_is_gone_and_its_files_stay(
    deployment: Deployment, client: TestClient
) -> None:
    batch_id = start_job(deployment, [request_line("a")])
    url = f"/v1/batches/{batch_id}"
    assert client.delete(url).status_code == 409
    complete_all(deployment, batch_id)
    finalize(deployment, batch_id)
    output = client.get(url).json()["output_file_id"]
    assert client.delete(url).json() == {"id": batch_id, "object": "batch", "deleted": True}
    assert client.get(url).status_code == client.delete(url).status_code == 404
    assert client.get(f"/v1/files/{output}").status_code == 200


def test_failed_batch_can_be_deleted(deployment: Deployment, client: TestClient) -> None:
    batch_id = create(client, "file-1")["id"]
    tend(deployment)
    assert client.delete(f"/v1/batches/{batch_id}").status_code == 200
    assert client.get("/v1/batches").json()["data"] == []


def test_retry_runs_the_failed_lines_again(deployment: Deployment, client: TestClient) -> None:
    batch_id = create(client, upload(client, lines(4))["id"], metadata={"k": "v"})["id"]
    tend(deployment)
    complete_all(deployment, batch_id, failed=(2, 3))
    finalize(deployment, batch_id)
    reply = client.post(f"/v1/batches/{batch_id}/retry")
    again = reply.json()
    assert (reply.status_code, again["status"], again["metadata"]) == (
        200,
        "validating",
        {"k": "v"},
    )
    content = client.get(f"/v1/files/{again['input_file_id']}/content").content
    assert content == b"".join(lines(4).splitlines(keepends=True)[1:3])
    tend(deployment)
    assert client.get(f"/v1/batches/{again['id']}").json()["request_counts"]["total"] == 2


def test_retry_runs_the_lines_that_never_ran(deployment: Deployment, client: TestClient) -> None:
    data = b"\n" + lines(3).removesuffix(b"\n")
    batch_id = create(client, upload(client, data)["id"])["id"]
    tend(deployment)
    answer(deployment, must_claim(deployment), lines=(2,))
    client.post(f"/v1/batches/{batch_id}/cancel")
    finalize(deployment, batch_id)
    again = client.post(f"/v1/batches/{batch_id}/retry").json()
    content = client.get(f"/v1/files/{again['input_file_id']}/content").content
    assert content == b"".join(lines(3).splitlines(keepends=True)[1:])


def test_retry_of_what_has_nothing_to_retry_is_409(
    deployment: Deployment, client: TestClient
) -> None:
    batch_id = start_job(deployment, [request_line("a")])
    url = f"/v1/batches/{batch_id}/retry"
    running = client.post(url)
    complete_all(deployment, batch_id)
    finalize(deployment, batch_id)
    for reply in (running, client.post(url)):
        assert reply.status_code == 409
        assert error_of(reply)["message"]
    assert client.post(f"/v1/batches/{UNKNOWN}/retry").status_code == 404
