"""`/v1/models`: the names that a line's `model` may have."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from batchjobs import catalogue, wire
from batchjobs.api.answers import json_answer
from batchjobs.api.requests import Service
from batchjobs.errors import NotFoundError

router = APIRouter(prefix="/v1/models")


@router.get("")
def index(deployment: Service) -> Response:
    with deployment.database.read() as session:
        entries = catalogue.entries(session)
    data = [
        wire.model_object(name, entry.model)
        for entry in entries
        for name in (entry.model.name, *entry.aliases)
    ]
    return json_answer({"object": "list", "data": data})


@router.get("/{name:path}")
def retrieve(deployment: Service, name: str) -> Response:
    with deployment.database.read() as session:
        if name not in catalogue.names(session):
            raise NotFoundError(
                f"The model '{name}' does not exist.", param="model", code="model_not_found"
            )
        return json_answer(wire.model_object(name, catalogue.resolve(session, name)))
