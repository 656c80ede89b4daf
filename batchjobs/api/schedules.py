"""`/v1/schedules`: our own, beside the public API. A schedule is known by its name.

Of suites, a schedule can only be added on the server's own machine: a suite's path, and a scorer
of one's own in it, are not for everyone with a key.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from batchjobs.api.access import Tenant
from batchjobs.api.answers import json_answer
from batchjobs.api.requests import Care, JsonObject, Service, read_number
from batchjobs.endpoints import find_endpoint
from batchjobs.endpoints.fields import missing, not_among, read_integer, unknown, wrong_type
from batchjobs.schedules.desk import Desk
from batchjobs.schedules.orders import DEFAULT_CATCH_UP, ScheduleOrder
from batchjobs.schedules.states import Overlap

DEFAULT_LIMIT = 20
MAX_LIMIT = 1000
MAX_PRIORITY = 1000
_REQUIRED = ("name", "cron", "input_file_id", "endpoint")
_TEXTS = (
    *_REQUIRED, "timezone", "model", "deadline", "completion_window", "overlap", "catch_up",
)  # fmt: skip
_KNOWN = frozenset({*_TEXTS, "priority"})

router = APIRouter(prefix="/v1/schedules")


def _desk(deployment: Service, tenant: Tenant) -> Desk:
    return Desk(deployment, tenant)


TheDesk = Annotated[Desk, Depends(_desk)]


@router.post("")
def create(desk: TheDesk, body: JsonObject) -> Response:
    return json_answer(desk.add(_order(body)))


@router.get("")
def index(desk: TheDesk) -> Response:
    return json_answer({"object": "list", "data": desk.index(), "has_more": False})


@router.get("/{name}")
def retrieve(desk: TheDesk, name: str) -> Response:
    return json_answer(desk.get(name))


@router.delete("/{name}")
def delete(desk: TheDesk, name: str) -> Response:
    return json_answer(desk.remove(name))


@router.post("/{name}/pause")
def pause(desk: TheDesk, name: str) -> Response:
    return json_answer(desk.pause(name))


@router.post("/{name}/resume")
def resume(desk: TheDesk, name: str) -> Response:
    return json_answer(desk.resume(name))


@router.post("/{name}/run")
def run(desk: TheDesk, caretaker: Care, name: str) -> Response:
    slot = desk.run(name)
    caretaker.ring_for_schedules()
    return json_answer(slot)


@router.get("/{name}/history")
def history(desk: TheDesk, request: Request, name: str) -> Response:
    """Behind the slot `?after=`."""
    query = request.query_params
    limit = read_number(query, "limit", default=DEFAULT_LIMIT, highest=MAX_LIMIT)
    return json_answer(desk.history(name, limit=limit, after=query.get("after") or None))


def _order(body: dict[str, Any]) -> ScheduleOrder:
    """Raises InvalidRequestError."""
    for name in body:
        if name not in _KNOWN:
            raise unknown(name)
    for name in _REQUIRED:
        if body.get(name) is None:
            raise missing(name)
    for name in _TEXTS:
        if body.get(name) is not None and not isinstance(body[name], str):
            raise wrong_type(name, "a string", body[name])
    find_endpoint(body["endpoint"])
    overlap = body.get("overlap") or Overlap.SKIP
    if overlap not in list(Overlap):
        raise not_among("overlap", overlap, [str(each) for each in Overlap])
    return ScheduleOrder(
        name=body["name"],
        cron=body["cron"],
        zone=body.get("timezone") or "UTC",
        file_id=body["input_file_id"],
        endpoint=body["endpoint"],
        model=body.get("model"),
        deadline=body.get("deadline"),
        window=body.get("completion_window") or "24h",
        priority=read_integer(body, "priority", -MAX_PRIORITY, MAX_PRIORITY) or 0,
        overlap=Overlap(overlap),
        catch_up=body.get("catch_up") or DEFAULT_CATCH_UP,
    )
