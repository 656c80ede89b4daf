from __future__ import annotations

from starlette.testclient import TestClient

from batchjobs import catalogue
from batchjobs.deployment import Deployment
from tests.support.jobs import MODEL, START


def test_every_name_of_the_catalogue_is_a_model(deployment: Deployment, client: TestClient) -> None:
    with deployment.database.write() as session:
        catalogue.add(
            session,
            deployment.clock,
            name="big",
            source="/models/big",
            revision="1",
            aliases=["maker/big"],
        )
    listed = client.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["big", "maker/big", MODEL]
    assert [model["root"] for model in listed["data"]] == ["big", "big", MODEL]
    for model in listed["data"]:
        assert client.get(f"/v1/models/{model['id']}").json() == model


def test_model_has_the_public_shape(client: TestClient) -> None:
    assert client.get(f"/v1/models/{MODEL}").json() == {
        "id": MODEL,
        "object": "model",
        "created": int(START.timestamp()),
        "owned_by": "batchjobs",
        "root": MODEL,
    }


def test_unknown_model_is_404(client: TestClient) -> None:
    reply = client.get("/v1/models/some/other")
    assert reply.status_code == 404
    assert reply.json()["error"] == {
        "message": "The model 'some/other' does not exist.",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
