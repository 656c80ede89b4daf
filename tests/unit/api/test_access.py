from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select
from starlette.testclient import TestClient

from batchjobs import api_keys
from batchjobs.api.app import create_app
from batchjobs.deployment import Deployment
from batchjobs.errors import DatabaseError
from batchjobs.models import Base
from tests.support.api import bearer, create, lines, new_secret, upload
from tests.support.engines import add_models
from tests.support.jobs import MODEL, clock_of, open_deployment

STRANGE = f"bj-{'x' * 43}"
TOKEN = "only for those who watch"


@pytest.fixture
def deployment(tmp_path: Path, database_url: str | None) -> Iterator[Deployment]:
    with open_deployment(
        tmp_path, database_url=database_url, poll_seconds=0.01, max_input_bytes=100_000
    ) as opened:
        add_models(opened, MODEL)
        yield opened


@pytest.fixture
def client(deployment: Deployment) -> TestClient:
    return TestClient(create_app(deployment, require_keys=True), raise_server_exceptions=False)


@pytest.fixture
def open_client(deployment: Deployment) -> TestClient:
    return TestClient(create_app(deployment), raise_server_exceptions=False)


def revoke_all(deployment: Deployment) -> None:
    with deployment.database.write() as session:
        for key in api_keys.keys(session):
            api_keys.revoke(session, deployment.clock, key.id)


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic Om5vbmU=", "bj-not-behind-the-word"]
)
def test_missing_key_is_told_in_the_public_words(client: TestClient, header: str) -> None:
    reply = client.get("/v1/files", headers={"authorization": header})
    assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")
    error = reply.json()["error"]
    assert error.pop("message").startswith("You didn't provide an API key. You need to provide")
    assert error == {"type": "invalid_request_error", "param": None, "code": None}


@pytest.mark.parametrize(
    ("secret", "shown"),
    [
        (STRANGE, "bj-xx***xxxx"),
        ("sk-proj-of-another-service-1234", "sk-pr***1234"),
        ("short-password", "***"),
        ("é" * 40, "***"),
    ],
)
def test_incorrect_key_is_told_with_little_of_it(
    client: TestClient, secret: str, shown: str
) -> None:
    reply = client.get("/v1/files", headers={"authorization": f"Bearer {secret}".encode("latin-1")})
    assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")
    error = reply.json()["error"]
    assert error.pop("message").startswith(f"Incorrect API key provided: {shown}. ")
    assert error == {"type": "invalid_request_error", "param": None, "code": "invalid_api_key"}


@pytest.mark.parametrize("word", ["Bearer", "bearer", "BEARER"])
def test_key_opens_its_tenants_objects(
    deployment: Deployment, client: TestClient, word: str
) -> None:
    headers = {"authorization": f"{word}  {new_secret(deployment, 'research')}"}
    assert client.get("/v1/files", headers=headers).status_code == 200


@pytest.mark.parametrize("header", [None, "Bearer none", "Bearer sk-1234", "Basic eA=="])
def test_without_required_keys_anybody_is_the_default_tenant(
    deployment: Deployment, open_client: TestClient, header: str | None
) -> None:
    headers = {} if header is None else {"authorization": header}
    file_id = upload(open_client)["id"]
    assert open_client.get(f"/v1/files/{file_id}", headers=headers).status_code == 200
    same = bearer(new_secret(deployment))
    assert open_client.get(f"/v1/files/{file_id}", headers=same).status_code == 200
    other = bearer(new_secret(deployment, "other"))
    assert open_client.get(f"/v1/files/{file_id}", headers=other).status_code == 404


def test_without_required_keys_a_wrong_key_of_ours_is_refused_all_the_same(
    deployment: Deployment, open_client: TestClient
) -> None:
    revoked = new_secret(deployment)
    revoke_all(deployment)
    for secret in (STRANGE, revoked):
        assert open_client.get("/v1/files", headers=bearer(secret)).status_code == 401


def test_revoked_key_is_refused_at_once(deployment: Deployment, client: TestClient) -> None:
    headers = bearer(new_secret(deployment))
    assert client.get("/v1/models", headers=headers).status_code == 200
    revoke_all(deployment)
    reply = client.get("/v1/models", headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_api_key")


def test_waiting_request_ends_when_its_key_is_revoked(
    deployment: Deployment, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.headers = bearer(new_secret(deployment))
    batch_id = create(client, upload(client)["id"])["id"]
    find, looks = api_keys.find, []

    def find_and_revoke(session: object, secret: str) -> object:
        looks.append(secret)
        if len(looks) == 4:
            revoke_all(deployment)
        return find(session, secret)  # type: ignore[arg-type]

    monkeypatch.setattr(api_keys, "find", find_and_revoke)
    assert client.get(f"/v1/batches/{batch_id}?wait=60").status_code == 401


def test_nothing_of_an_upload_without_a_key_is_stored(
    deployment: Deployment, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    monkeypatch.setattr(type(deployment.store), "create", lambda _, key: begun.append(key))
    for headers in ({}, bearer(STRANGE)):
        reply = client.post(
            "/v1/files",
            data={"purpose": "batch"},
            files={"file": ("a.jsonl", lines(1))},
            headers=headers,
        )
        assert reply.status_code == 401
    assert begun == []


def test_unknown_route_is_the_same_with_and_without_a_key(
    deployment: Deployment, client: TestClient
) -> None:
    headers = bearer(new_secret(deployment))
    for method, path, status in (
        ("GET", "/v1/threads", 404),
        ("GET", "/v1/files/file-1/secrets", 404),
        ("PUT", "/v1/files", 405),
    ):
        with_key = client.request(method, path, headers=headers)
        without = client.request(method, path)
        assert (with_key.status_code, with_key.text) == (status, without.text)
        assert without.status_code == status


def test_use_is_noted_once_an_hour(deployment: Deployment, client: TestClient) -> None:
    headers = bearer(new_secret(deployment))

    def last_used() -> object:
        client.get("/v1/models", headers=headers)
        with deployment.database.read() as session:
            return api_keys.keys(session)[0].last_used_at

    first = last_used()
    assert first is not None
    clock_of(deployment).advance(timedelta(minutes=59))
    assert last_used() == first
    clock_of(deployment).advance(timedelta(minutes=1))
    assert last_used() == first + timedelta(hours=1)  # type: ignore[operator]


def test_use_that_cannot_be_noted_keeps_nobody_from_reading(
    deployment: Deployment, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise DatabaseError("The disk is full.")

    headers = bearer(new_secret(deployment))
    monkeypatch.setattr(type(deployment.database), "transact", fail)
    assert client.get("/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize("require_keys", [True, False])
def test_metrics_are_open_to_their_token_only(tmp_path: Path, require_keys: bool) -> None:
    with open_deployment(tmp_path, metrics_token=TOKEN) as deployment:
        client = TestClient(create_app(deployment, require_keys=require_keys))
        assert client.get("/metrics", headers=bearer(TOKEN)).status_code == 200
        for headers in ({}, bearer("another"), bearer(new_secret(deployment)), bearer("é")):
            encoded = {name: value.encode("latin-1") for name, value in headers.items()}
            reply = client.get("/metrics", headers=encoded)
            assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")
            assert TOKEN not in reply.text


@pytest.mark.parametrize("token", ["", None])
def test_metrics_without_a_token_are_closed_where_keys_are_required(
    tmp_path: Path, token: str | None
) -> None:
    with open_deployment(tmp_path, metrics_token=token) as deployment:
        closed = TestClient(create_app(deployment, require_keys=True))
        for headers in ({}, {"authorization": "Bearer "}, bearer(new_secret(deployment))):
            assert closed.get("/metrics", headers=headers).status_code == 401
        assert TestClient(create_app(deployment)).get("/metrics").status_code == 200


def test_secret_is_nowhere_but_with_its_holder(
    deployment: Deployment,
    client: TestClient,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **options: object) -> None:
        raise ZeroDivisionError

    secret = new_secret(deployment)
    with caplog.at_level(logging.DEBUG):
        client.get("/v1/files", headers=bearer(secret))
        with monkeypatch.context() as broken:
            broken.setattr("batchjobs.api.batches.jobs.page", fail)
            failed = client.get("/v1/batches", headers=bearer(secret))
        revoke_all(deployment)
        refused = client.get("/v1/files", headers=bearer(secret))
    assert (failed.status_code, refused.status_code) == (500, 401)
    assert "ZeroDivisionError" in caplog.text
    with deployment.database.read() as session:
        tables = Base.metadata.sorted_tables
        dump = "".join(str(session.execute(select(table)).all()) for table in tables)
    assert api_keys.mask(secret) in dump
    home = deployment.settings.home
    on_disk = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
    for place in (caplog.text, failed.text, refused.text, dump):
        assert secret not in place
        assert secret[8:-8] not in place
    assert secret[8:-8].encode() not in on_disk
