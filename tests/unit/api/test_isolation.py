"""To one tenant, what is another's is as what never was: same status, body and headers.

Every route stands in one of the two tables below, or those of the page's in `tests.support.page`;
a new one without a place fails a test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from httpx2 import Response
from starlette.routing import BaseRoute
from starlette.testclient import TestClient

from batchjobs.api.app import create_app
from batchjobs.deployment import Deployment
from batchjobs.finalize import finalize
from batchjobs.intake import validate
from tests.support import page
from tests.support.api import bearer, create, lines, new_secret, upload
from tests.support.engines import add_models
from tests.support.jobs import (
    ENDPOINT,
    MODEL,
    answer,
    complete_all,
    load_job,
    must_claim,
    open_deployment,
)

NEVER = {"file": "file-" + "0" * 32, "batch": "batch_" + "0" * 32, "schedule": "unknown"}
KEY = "the same key"

Ask = Callable[[TestClient, str], Response]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What `owner` has, and a `stranger` who is to learn nothing of it."""

    deployment: Deployment
    owner: TestClient
    stranger: TestClient
    ids: dict[str, list[str]]


def new_batch(client: TestClient, input_file_id: str, **headers: str) -> Response:
    asked = {"endpoint": ENDPOINT, "completion_window": "24h", "input_file_id": input_file_id}
    return client.post("/v1/batches", json=asked, headers=headers)


def new_schedule(client: TestClient, input_file_id: str) -> Response:
    asked = {
        "name": "nightly",
        "cron": "0 2 * * *",
        "input_file_id": input_file_id,
        "endpoint": ENDPOINT,
    }
    return client.post("/v1/schedules", json=asked)


# Route → what of another's objects its requests name, and those requests.
NAMING: dict[tuple[str, str], tuple[str, list[Ask]]] = {
    ("GET", "/v1/files"): (
        "file",
        [
            lambda client, name: client.get(f"/v1/files?after={name}"),
            lambda client, name: client.get(f"/v1/files?after={name}&order=asc&purpose=batch"),
            lambda client, name: client.get("/v1/files"),
        ],
    ),
    ("GET", "/v1/files/{file_id}"): (
        "file",
        [lambda client, name: client.get(f"/v1/files/{name}")],
    ),
    ("DELETE", "/v1/files/{file_id}"): (
        "file",
        [lambda client, name: client.delete(f"/v1/files/{name}")],
    ),
    ("GET", "/v1/files/{file_id}/content"): (
        "file",
        [
            lambda client, name: client.get(f"/v1/files/{name}/content"),
            lambda client, name: client.get(
                f"/v1/files/{name}/content", headers={"range": "bytes=99999-"}
            ),
            lambda client, name: client.get(
                f"/v1/files/{name}/content", headers={"if-none-match": "*"}
            ),
        ],
    ),
    ("POST", "/v1/batches"): (
        "file",
        [lambda client, name: new_batch(client, name)],
    ),
    ("GET", "/v1/batches"): (
        "batch",
        [
            lambda client, name: client.get(f"/v1/batches?after={name}"),
            lambda client, name: client.get("/v1/batches"),
        ],
    ),
    ("GET", "/v1/batches/{batch_id}"): (
        "batch",
        [
            lambda client, name: client.get(f"/v1/batches/{name}"),
            lambda client, name: client.get(f"/v1/batches/{name}?wait=60"),
            lambda client, name: client.get(f"/v1/batches/{name}", headers={"if-none-match": "*"}),
        ],
    ),
    ("POST", "/v1/batches/{batch_id}/cancel"): (
        "batch",
        [lambda client, name: client.post(f"/v1/batches/{name}/cancel")],
    ),
    ("DELETE", "/v1/batches/{batch_id}"): (
        "batch",
        [lambda client, name: client.delete(f"/v1/batches/{name}")],
    ),
    ("POST", "/v1/batches/{batch_id}/retry"): (
        "batch",
        [lambda client, name: client.post(f"/v1/batches/{name}/retry")],
    ),
    ("GET", "/v1/batches/{batch_id}/results"): (
        "batch",
        [
            lambda client, name: client.get(f"/v1/batches/{name}/results"),
            lambda client, name: client.get(f"/v1/batches/{name}/results?offset=1"),
        ],
    ),
    ("POST", "/v1/schedules"): ("file", [new_schedule]),
    ("GET", "/v1/schedules"): (
        "schedule",
        [lambda client, name: client.get("/v1/schedules")],
    ),
    ("GET", "/v1/schedules/{name}"): (
        "schedule",
        [lambda client, name: client.get(f"/v1/schedules/{name}")],
    ),
    ("DELETE", "/v1/schedules/{name}"): (
        "schedule",
        [lambda client, name: client.delete(f"/v1/schedules/{name}")],
    ),
    ("POST", "/v1/schedules/{name}/pause"): (
        "schedule",
        [lambda client, name: client.post(f"/v1/schedules/{name}/pause")],
    ),
    ("POST", "/v1/schedules/{name}/resume"): (
        "schedule",
        [lambda client, name: client.post(f"/v1/schedules/{name}/resume")],
    ),
    ("POST", "/v1/schedules/{name}/run"): (
        "schedule",
        [lambda client, name: client.post(f"/v1/schedules/{name}/run")],
    ),
    ("GET", "/v1/schedules/{name}/history"): (
        "schedule",
        [lambda client, name: client.get(f"/v1/schedules/{name}/history")],
    ),
}
# What names no object of a tenant, and whether it needs a key.
NAMELESS = {
    ("POST", "/v1/files"): True,
    ("GET", "/v1/models"): True,
    ("GET", "/v1/models/{name:path}"): True,
    ("GET", "/metrics"): True,
    ("GET", "/healthz"): False,
    ("GET", "/readyz"): False,
}
NEEDING_A_KEY = [*NAMING, *(route for route, needs in NAMELESS.items() if needs)]
NEEDING_NO_KEY = [route for route, needs in NAMELESS.items() if not needs]


def routes_of(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, str]]:
    for route in routes:
        router = getattr(route, "original_router", None)
        if router is not None:
            yield from routes_of(router.routes)
            continue
        for method in getattr(route, "methods", None) or {"ANY"}:
            yield method, getattr(route, "path", repr(route))


@pytest.fixture
def deployment(tmp_path: Path, database_url: str | None) -> Iterator[Deployment]:
    with open_deployment(tmp_path, database_url=database_url) as opened:
        add_models(opened, MODEL)
        yield opened


@pytest.fixture
def app(deployment: Deployment) -> FastAPI:
    return create_app(deployment, require_keys=True)


def client_of(app: FastAPI, deployment: Deployment, tenant: str) -> TestClient:
    return TestClient(
        app, headers=bearer(new_secret(deployment, tenant)), raise_server_exceptions=False
    )


@pytest.fixture
def world(app: FastAPI, deployment: Deployment) -> World:
    owner = client_of(app, deployment, "owner")
    ended = started(owner, deployment)
    complete_all(deployment, ended, failed=(2,))
    finalize(deployment, ended)
    running = started(owner, deployment)
    answer(deployment, must_claim(deployment), lines=(1,))
    waiting = create(owner, upload(owner)["id"])["id"]
    job = load_job(deployment, ended)
    assert job.output_file_id
    assert job.error_file_id
    files = [page["id"] for page in owner.get("/v1/files").json()["data"]]
    assert {job.input_file_id, job.output_file_id, job.error_file_id} < set(files)
    assert new_schedule(owner, job.input_file_id).status_code == 200
    return World(
        deployment=deployment,
        owner=owner,
        stranger=client_of(app, deployment, "stranger"),
        ids={"file": files, "batch": [ended, running, waiting], "schedule": ["nightly"]},
    )


def started(client: TestClient, deployment: Deployment) -> str:
    batch_id: str = create(client, upload(client, lines(3))["id"])["id"]
    validate(deployment, batch_id)
    return batch_id


def told(reply: Response, name: str) -> tuple[int, str, dict[str, str]]:
    """What the caller learns, whatever the name that was asked for and what was newly made."""
    text = reply.text.replace(name, "NAME")
    headers = {key: value for key, value in reply.headers.items() if key != "x-request-id"}
    return reply.status_code, re.sub(r"(file-|batch_)[0-9a-f]{32}", "NEW", text), headers


def everything_of(client: TestClient) -> Any:
    return [
        client.get(f"/v1/{route}").json()["data"] for route in ("files", "batches", "schedules")
    ]


def test_every_route_stands_in_a_table(app: FastAPI) -> None:
    of_the_page = {*page.OF_A_JOB, *page.OF_A_SCHEDULE, *page.OPERATORS, *page.NAMELESS}
    assert set(routes_of(app.routes)) == {*NAMING, *NAMELESS, *of_the_page}


def test_what_is_anothers_is_as_what_never_was(world: World, subtests: pytest.Subtests) -> None:
    before = everything_of(world.owner)
    for route, (kind, asks) in NAMING.items():
        with subtests.test(" ".join(route)):
            for ask in asks:
                never = told(ask(world.stranger, NEVER[kind]), NEVER[kind])
                for name in world.ids[kind]:
                    assert told(ask(world.stranger, name), name) == never
            assert everything_of(world.owner) == before


def test_lists_of_a_stranger_are_empty(world: World) -> None:
    empty = {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
    for query in ("", "?limit=1", "?order=asc", "?purpose=batch_output"):
        assert world.stranger.get(f"/v1/files{query}").json() == empty
    assert world.stranger.get("/v1/batches?limit=1").json() == empty


def test_batch_of_anothers_file_fails_as_that_of_a_missing_one(world: World) -> None:
    ends = []
    for name in (NEVER["file"], *world.ids["file"]):
        batch_id = new_batch(world.stranger, name).json()["id"]
        validate(world.deployment, batch_id)
        end = world.stranger.get(f"/v1/batches/{batch_id}")
        assert end.json()["errors"]["data"][0]["message"].startswith(f"Cannot find file {name}")
        ends.append(end.text.replace(name, "NAME").replace(batch_id, "BATCH"))
    assert set(ends) == {ends[0]}


def test_batch_that_names_anothers_file_does_not_keep_it(world: World) -> None:
    file_id = upload(world.owner)["id"]
    assert new_batch(world.stranger, file_id).status_code == 200
    assert world.owner.delete(f"/v1/files/{file_id}").status_code == 200


def test_key_of_a_request_is_each_tenants_own(world: World) -> None:
    theirs = new_batch(world.owner, "file-1", **{"idempotency-key": KEY}).json()["id"]
    mine = new_batch(world.stranger, "file-2", **{"idempotency-key": KEY})
    assert mine.status_code == 200
    for client, file_id, made in (
        (world.owner, "file-1", theirs),
        (world.stranger, "file-2", mine.json()["id"]),
    ):
        again = new_batch(client, file_id, **{"idempotency-key": KEY})
        assert (again.status_code, again.json()["id"]) == (200, made)
    other = new_batch(world.stranger, "file-1", **{"idempotency-key": KEY})
    assert other.status_code == 409
    assert theirs not in other.text


def test_keys_of_one_tenant_open_the_same(app: FastAPI, world: World) -> None:
    colleague = client_of(app, world.deployment, "owner")
    assert everything_of(colleague) == everything_of(world.owner)
    batch_id = world.ids["batch"][0]
    again = colleague.post(f"/v1/batches/{batch_id}/retry").json()["id"]
    validate(world.deployment, again)
    complete_all(world.deployment, again)
    finalize(world.deployment, again)
    batch = world.owner.get(f"/v1/batches/{again}").json()
    assert batch["status"] == "completed"
    for file_id in (batch["input_file_id"], batch["output_file_id"]):
        assert world.owner.get(f"/v1/files/{file_id}/content").content.count(b"\n") == 1


def test_request_without_a_key_is_refused_before_anything_else(
    app: FastAPI, world: World, subtests: pytest.Subtests
) -> None:
    anybody = TestClient(app, raise_server_exceptions=False)
    before = everything_of(world.owner)
    for method, path in NEEDING_A_KEY:
        with subtests.test(f"{method} {path}"):
            replies = [
                anybody.request(method, re.sub(r"\{.*\}", name, path), content=b"not JSON")
                for name in (*NEVER.values(), *world.ids["file"], *world.ids["batch"], MODEL)
            ]
            assert {reply.status_code for reply in replies} == {401}
            assert {reply.headers["www-authenticate"] for reply in replies} == {"Bearer"}
            assert len({reply.text for reply in replies}) == 1
            assert set(replies[0].json()["error"]) == {"message", "type", "param", "code"}
            assert everything_of(world.owner) == before


@pytest.mark.parametrize("route", NEEDING_NO_KEY, ids=" ".join)
def test_probe_needs_no_key(app: FastAPI, route: tuple[str, str]) -> None:
    with TestClient(app) as anybody:
        assert anybody.request(*route).status_code == 200
