"""`/v1/batches`."""

from __future__ import annotations

import threading
import time
from typing import Any

import anyio
from fastapi import APIRouter, Request
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from batchjobs import catalogue, wire
from batchjobs.api.access import Tenant, read_tenant
from batchjobs.api.answers import json_answer, versioned_answer
from batchjobs.api.expiry import read_expiry
from batchjobs.api.requests import (
    MAX_OFFSET,
    Ahead,
    Care,
    JsonObject,
    Service,
    read_after,
    read_number,
)
from batchjobs.deployment import Deployment
from batchjobs.endpoints import find_endpoint
from batchjobs.endpoints.fields import (
    invalid_value,
    missing,
    read_integer,
    unknown,
    wrong_type,
)
from batchjobs.errors import InvalidRequestError, NotFoundError
from batchjobs.forecast import Forecast
from batchjobs.models import Job
from batchjobs.outlook import NOTHING_AHEAD, Outlook
from batchjobs.queue import jobs, repeats, tallies
from batchjobs.queue.repeats import RequestName
from batchjobs.queue.tallies import Tally
from batchjobs.queue.terms import MAX_PRIORITY
from batchjobs.results import results_so_far
from batchjobs.retry import retry
from batchjobs.states import TERMINAL, JobState

DEFAULT_LIMIT = 20
MAX_LIMIT = 100
MAX_WAIT_SECONDS = 60
MAX_ID_CHARS = 64
MAX_KEY_CHARS = 255
MAX_SEED = 2**63 - 1

_FIRST_PAUSE_SECONDS = 0.05
"""Between two looks of a request that waits: a short job's end is told soon, and many requests
that wait for long ones ask little."""
_REQUIRED = ("input_file_id", "endpoint", "completion_window")
_EXPIRY = "output_expires_after"
_KNOWN = frozenset({*_REQUIRED, _EXPIRY, "metadata", "model", "priority", "seed"})

router = APIRouter(prefix="/v1/batches")


@router.post("")
def create(
    deployment: Service, tenant: Tenant, caretaker: Care, request: Request, body: JsonObject
) -> Response:
    _check(body)
    name = _name(request, body)

    def make(session: Session) -> wire.Wire:
        if name is not None and (job := repeats.earlier(session, name, tenant=tenant)):
            return _load_object(session, job)
        job = jobs.create(
            session,
            deployment.clock,
            input_file_id=body["input_file_id"],
            endpoint=body["endpoint"],
            completion_window=body["completion_window"],
            max_window_hours=deployment.settings.max_completion_window_hours,
            model_override=_read_model(session, body),
            metadata=body.get("metadata"),
            seed=read_integer(body, "seed", 0, MAX_SEED) or 0,
            priority=read_integer(body, "priority", -MAX_PRIORITY, MAX_PRIORITY) or 0,
            output_expires_seconds=read_expiry(_EXPIRY, body.get(_EXPIRY)),
            request=name,
            tenant=tenant,
        )
        return _load_object(session, job)

    batch = deployment.database.transact(make)
    caretaker.ring()
    return json_answer(batch)


@router.get("")
def index(deployment: Service, tenant: Tenant, forecast: Ahead, request: Request) -> Response:
    query = request.query_params
    limit = read_number(query, "limit", default=DEFAULT_LIMIT, highest=MAX_LIMIT)
    after = read_after(query)
    outlooks = forecast.outlooks()
    with deployment.database.read() as session:
        found, has_more = jobs.page(session, limit=limit, after=after, tenant=tenant)
        sums = tallies.tallies(session, found)
        data = [
            _object(session, job, sums[job.id], outlooks.get(job.id, NOTHING_AHEAD))
            for job in found
        ]
        page = wire.list_page(data, has_more=has_more)
    return json_answer(page)


@router.get("/{batch_id}")
async def retrieve(
    deployment: Service, forecast: Ahead, request: Request, batch_id: str
) -> Response:
    """With `?wait=` it answers when the batch is another than the caller knows by its ETag, or
    without one when it has ended, at the latest after so many seconds. A key may be revoked
    meanwhile."""

    def look() -> wire.Wire:
        return _load(deployment, read_tenant(request, deployment), forecast, batch_id)

    wait = read_number(request.query_params, "wait", default=0, highest=MAX_WAIT_SECONDS)
    known = request.headers.get("if-none-match")
    closing: threading.Event = request.app.state.closing
    until = time.monotonic() + wait
    pause = _FIRST_PAUSE_SECONDS
    while True:
        batch = await run_in_threadpool(look)
        answer = versioned_answer(batch, known, restless=wire.RESTLESS)
        is_news = answer.status_code != 304 if known else batch["status"] in TERMINAL
        left = 0 if closing.is_set() else until - time.monotonic()
        if is_news or left <= 0 or await request.is_disconnected():
            return answer
        await anyio.sleep(min(left, pause))
        pause = min(2 * pause, deployment.settings.poll_seconds)


@router.post("/{batch_id}/cancel")
def cancel(deployment: Service, tenant: Tenant, caretaker: Care, batch_id: str) -> Response:
    def end(session: Session) -> wire.Wire:
        job = jobs.cancel(session, deployment.clock, batch_id, tenant=tenant)
        return _load_object(session, job)

    batch = deployment.database.transact(end)
    caretaker.ring()
    return json_answer(batch)


@router.delete("/{batch_id}")
def delete(deployment: Service, tenant: Tenant, batch_id: str) -> Response:
    deployment.database.transact(lambda session: jobs.remove(session, batch_id, tenant=tenant))
    return json_answer(wire.deleted(batch_id, "batch"))


@router.post("/{batch_id}/retry")
def retry_failed(
    deployment: Service, tenant: Tenant, caretaker: Care, forecast: Ahead, batch_id: str
) -> Response:
    job = retry(deployment, batch_id, tenant=tenant)
    caretaker.ring()
    return json_answer(_load(deployment, tenant, forecast, job.id))


@router.get("/{batch_id}/results")
def results(deployment: Service, tenant: Tenant, request: Request, batch_id: str) -> Response:
    """What is finished so far, behind line `?offset=` of the input."""
    offset = read_number(request.query_params, "offset", default=0, highest=MAX_OFFSET)
    found = results_so_far(deployment, batch_id, offset=offset, tenant=tenant)
    headers = {
        "x-incomplete": str(not found.is_complete).lower(),
        "x-last-line": str(found.last_line),
    }
    return StreamingResponse(found.lines, headers=headers, media_type="application/jsonl")


def _check(body: dict[str, Any]) -> None:
    """What is refused at once; the rest is found by intake. Raises InvalidRequestError."""
    for name in body:
        if name not in _KNOWN:
            raise unknown(name)
    for name in _REQUIRED:
        value = body.get(name)
        if value is None:
            raise missing(name)
        if not isinstance(value, str):
            raise wrong_type(name, "a string", value)
    find_endpoint(body["endpoint"])
    file_id = body["input_file_id"]
    if not file_id.isprintable() or not 0 < len(file_id) <= MAX_ID_CHARS:
        raise invalid_value("input_file_id", f"expected an id of 1 to {MAX_ID_CHARS} characters.")
    metadata = body.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise wrong_type("metadata", "an object", metadata)


def _read_model(session: Session, body: dict[str, Any]) -> str | None:
    """The name that takes the place of every line's. Raises InvalidRequestError."""
    name = body.get("model")
    if name is None:
        return None
    if not isinstance(name, str):
        raise wrong_type("model", "a string", name)
    try:
        catalogue.resolve(session, name)
    except NotFoundError as wrong:
        raise InvalidRequestError(wrong.message, param=wrong.param, code=wrong.code) from wrong
    return name


def _name(request: Request, body: dict[str, Any]) -> RequestName | None:
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not 0 < len(key) <= MAX_KEY_CHARS:
        raise invalid_value("Idempotency-Key", f"expected 1 to {MAX_KEY_CHARS} characters.")
    return RequestName.of(key, body)


def _load(deployment: Deployment, tenant: str, forecast: Forecast, batch_id: str) -> wire.Wire:
    outlook = forecast.outlooks().get(batch_id, NOTHING_AHEAD)
    with deployment.database.read() as session:
        return _load_object(session, jobs.get(session, batch_id, tenant=tenant), outlook)


def _load_object(session: Session, job: Job, outlook: Outlook = NOTHING_AHEAD) -> wire.Wire:
    return _object(session, job, tallies.tally(session, job), outlook)


def _object(session: Session, job: Job, tally: Tally, outlook: Outlook) -> wire.Wire:
    errors = jobs.errors(session, job.id) if job.status == JobState.FAILED else ()
    return wire.batch_object(job, tally, errors, outlook)
