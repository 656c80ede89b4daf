"""What browsers send for other websites is refused: changes from elsewhere, and strange names."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from batchjobs.api.app import create_app
from batchjobs.api.names import names_of
from batchjobs.deployment import Deployment
from batchjobs.settings import Settings
from tests.support.api import create, lines, upload

FOREIGN = [
    {"sec-fetch-site": "cross-site", "origin": "http://evil.example"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "none"},
    {"origin": "http://evil.example"},
    {"origin": "http://testserver:81"},
    {"origin": "null"},
    {"origin": ""},
]
OWN = [{}, {"sec-fetch-site": "same-origin"}, {"origin": "http://testserver"}]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_change_that_another_site_sends_is_refused(
    client: TestClient, headers: dict[str, str]
) -> None:
    batch_id = create(client, upload(client)["id"])["id"]
    replies = [
        client.post(f"/v1/batches/{batch_id}/cancel", headers=headers),
        client.delete(f"/v1/batches/{batch_id}", headers=headers),
        client.post("/v1/schedules/nightly/run", headers=headers),
        client.post(
            "/v1/files",
            data={"purpose": "batch"},
            files={"file": ("in.jsonl", lines(1))},
            headers=headers,
        ),
    ]
    assert {reply.status_code for reply in replies} == {403}
    assert "another website" in replies[0].json()["error"]["message"]
    assert client.get(f"/v1/batches/{batch_id}").json()["status"] == "validating"
    assert len(client.get("/v1/files", headers=headers).json()["data"]) == 1


@pytest.mark.parametrize("headers", OWN, ids=str)
def test_program_and_page_of_ours_change_what_they_like(
    client: TestClient, headers: dict[str, str]
) -> None:
    batch_id = create(client, upload(client)["id"])["id"]
    assert client.post(f"/v1/batches/{batch_id}/cancel", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8000", "localhost", "LOCALHOST:80", "[::1]:8000", "10.1.2.3", "gpu.example.org",
     "gpu.example.org.:80", "box"],
)  # fmt: skip
def test_known_name_is_answered(deployment: Deployment, host: str) -> None:
    client = TestClient(create_app(deployment, names=["gpu.example.org", "Box"]))
    assert client.get("/v1/files", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example", "[::1", "", "a@"],
)
@pytest.mark.parametrize("path", ["/v1/files", "/", "/healthz"])
def test_strange_name_is_refused_without_keys(deployment: Deployment, host: str, path: str) -> None:
    client = TestClient(create_app(deployment, names=[]))
    reply = client.get(path, headers={"host": host})
    assert reply.status_code == 403
    assert "BATCHJOBS_ALLOWED_HOSTS" in reply.json()["error"]["message"]


def test_names_are_the_address_and_those_that_are_set() -> None:
    settings = Settings.load(allowed_hosts="gpu.example.org, api ,")
    names = names_of("my.box", settings)
    assert names[0] == "my.box"
    assert names[2:] == ("gpu.example.org", "api")
