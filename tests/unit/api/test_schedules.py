"""`/v1/schedules`, as an owner and as another tenant."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from batchjobs.deployment import Deployment
from batchjobs.schedules.firing import tick
from tests.support.api import bearer, new_secret, upload
from tests.support.jobs import ENDPOINT, clock_of
from tests.unit.schedules.nights import set_clock


def asked(client: TestClient, **changes: Any) -> dict[str, Any]:
    body = {
        "name": "nightly",
        "cron": "0 2 * * *",
        "timezone": "Asia/Shanghai",
        "input_file_id": upload(client)["id"],
        "endpoint": ENDPOINT,
    }
    return {name: value for name, value in {**body, **changes}.items() if value is not None}


def add(client: TestClient, **changes: Any) -> dict[str, Any]:
    answer = client.post("/v1/schedules", json=asked(client, **changes))
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_schedule_is_added_and_shows_its_next_runs(
    client: TestClient, deployment: Deployment
) -> None:
    set_clock(deployment, "2026-11-30T00:00")
    made = add(client, deadline="07:00", overlap="queue", catch_up="90m")
    assert made["object"] == "schedule"
    assert (made["overlap"], made["catch_up_seconds"], made["deadline"]) == ("queue", 5400, "07:00")
    assert [run["local"] for run in made["next_runs"]] == [
        "2026-12-01T02:00+08:00",
        "2026-12-02T02:00+08:00",
        "2026-12-03T02:00+08:00",
    ]
    assert client.get("/v1/schedules").json()["data"] == [made]
    assert client.get("/v1/schedules/nightly").json() == made


def test_history_goes_on_behind_a_slot_also_within_a_second(
    client: TestClient, deployment: Deployment
) -> None:
    set_clock(deployment, "2026-11-30T00:00")
    add(client)
    for _ in range(5):
        client.post("/v1/schedules/nightly/run")
        clock_of(deployment).advance(timedelta(milliseconds=100))
    every = client.get("/v1/schedules/nightly/history").json()["data"]
    assert len({slot["slot_at"] for slot in every}) == 1
    found: list[str] = []
    page = client.get("/v1/schedules/nightly/history?limit=2").json()
    while page["data"]:
        found += [slot["id"] for slot in page["data"]]
        page = client.get(f"/v1/schedules/nightly/history?limit=2&after={found[-1]}").json()
    assert found == [slot["id"] for slot in every]
    for unknown in ("slot_999", "slot_", "slot_" + "9" * 40, "7", "slot_²"):
        refused = client.get(f"/v1/schedules/nightly/history?after={unknown}")
        assert refused.status_code == 404, unknown


def test_life_of_a_schedule(client: TestClient, deployment: Deployment) -> None:
    set_clock(deployment, "2026-11-30T00:00")
    add(client)
    assert client.post("/v1/schedules/nightly/pause").json()["next_runs"] == []
    assert client.post("/v1/schedules/nightly/resume").json()["paused_at"] is None
    slot = client.post("/v1/schedules/nightly/run").json()
    assert (slot["kind"], slot["status"]) == ("manual", "waiting")
    tick(deployment)
    page = client.get("/v1/schedules/nightly/history").json()
    assert [each["status"] for each in page["data"]] == ["running"]
    earlier = client.get(f"/v1/schedules/nightly/history?after={slot['id']}").json()
    assert earlier["data"] == []
    batch = client.get(f"/v1/batches/{page['data'][0]['batch_id']}").json()
    assert batch["metadata"]["schedule"] == "nightly"
    refused = client.delete("/v1/schedules/nightly")
    assert refused.status_code == 409
    client.post(f"/v1/batches/{batch['id']}/cancel")


@pytest.mark.parametrize(
    ("changes", "status", "param"),
    [
        ({"name": None}, 400, "name"),
        ({"name": "a b"}, 400, "name"),
        ({"cron": "0 2 * *"}, 400, "cron"),
        ({"timezone": "Mars/Olympus"}, 400, "timezone"),
        ({"deadline": "25:00"}, 400, "deadline"),
        ({"overlap": "both"}, 400, "overlap"),
        ({"catch_up": "soon"}, 400, "catch_up"),
        ({"completion_window": "1y"}, 400, "completion_window"),
        ({"priority": 5000}, 400, "priority"),
        ({"model": 7}, 400, "model"),
        ({"suites": ["/etc/passwd"]}, 400, "suites"),
        ({"input_file_id": "file-none"}, 404, "id"),
        ({"endpoint": "/v1/nothing"}, 400, "endpoint"),
    ],
)
def test_mistake_names_its_parameter(
    client: TestClient, changes: dict[str, Any], status: int, param: str
) -> None:
    answer = client.post("/v1/schedules", json=asked(client, **changes))
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


def test_name_is_given_once(client: TestClient) -> None:
    add(client)
    assert client.post("/v1/schedules", json=asked(client)).status_code == 409


def test_schedule_of_another_tenant_is_unknown(client: TestClient, deployment: Deployment) -> None:
    add(client)
    theirs = bearer(new_secret(deployment, "others"))
    assert client.get("/v1/schedules", headers=theirs).json()["data"] == []
    for method, path in (
        ("get", ""), ("delete", ""), ("post", "/pause"), ("post", "/resume"), ("post", "/run"),
        ("get", "/history"),
    ):  # fmt: skip
        answer = client.request(method, f"/v1/schedules/nightly{path}", headers=theirs)
        assert answer.status_code == 404


def test_file_of_another_tenant_cannot_be_scheduled(
    client: TestClient, deployment: Deployment
) -> None:
    theirs = bearer(new_secret(deployment, "others"))
    answer = client.post("/v1/schedules", json=asked(client), headers=theirs)
    assert answer.status_code == 404
