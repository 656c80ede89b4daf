"""`/v1/files`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import BinaryIO
from urllib.parse import quote

import anyio
from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from batchjobs import wire
from batchjobs.api.access import Tenant
from batchjobs.api.answers import entity_tag, is_known, json_answer
from batchjobs.api.ranges import ByteRange, UnsatisfiableRangeError, parse_range
from batchjobs.api.requests import Service, read_after, read_newest_first, read_number
from batchjobs.api.uploads import PURPOSES, Upload
from batchjobs.deployment import Deployment
from batchjobs.endpoints.fields import not_among
from batchjobs.errors import InvalidRequestError
from batchjobs.files import CHUNK_BYTES, delete_file, get_file, page
from batchjobs.models import File

MAX_LIMIT = 10_000
DRAINED_BYTES = 64 << 20
"""How much of a refused body is still read: many clients listen only when they have sent it."""
CLIENT_CLOSED = 499
LISTED_PURPOSES = (*PURPOSES, "assistants_output", "batch_output", "fine-tune-results")

router = APIRouter(prefix="/v1/files")


@router.post("")
async def create(deployment: Service, tenant: Tenant, request: Request) -> Response:
    body = request.stream()
    try:
        content_type = request.headers.get("content-type", "")
        upload = Upload(deployment, content_type, tenant=tenant)
        file = await _receive(upload, body)
    except InvalidRequestError:
        await _drain(body)
        raise
    except ClientDisconnect:
        return Response(status_code=CLIENT_CLOSED)  # nobody is there to read it
    return json_answer(wire.file_object(file))


@router.get("")
def index(deployment: Service, tenant: Tenant, request: Request) -> Response:
    query = request.query_params
    limit = read_number(query, "limit", default=MAX_LIMIT, highest=MAX_LIMIT)
    after = read_after(query)
    with deployment.database.read() as session:
        files, has_more = page(
            session,
            limit=limit,
            after=after,
            newest_first=read_newest_first(query),
            purpose=_read_purpose(query),
            tenant=tenant,
        )
    return json_answer(wire.list_page(list(map(wire.file_object, files)), has_more=has_more))


@router.get("/{file_id}")
def retrieve(deployment: Service, tenant: Tenant, file_id: str) -> Response:
    return json_answer(wire.file_object(_find(deployment, tenant, file_id)))


@router.delete("/{file_id}")
def delete(deployment: Service, tenant: Tenant, file_id: str) -> Response:
    delete_file(deployment, file_id, tenant=tenant)
    return json_answer(wire.deleted(file_id, "file"))


@router.get("/{file_id}/content")
def content(deployment: Service, tenant: Tenant, request: Request, file_id: str) -> Response:
    return answer_content(deployment, request, _find(deployment, tenant, file_id))


def answer_content(deployment: Deployment, request: Request, file: File) -> Response:
    """The file as a download, or the range of it that is asked for."""
    tag = entity_tag(file.sha256)
    headers = {"etag": tag, "accept-ranges": "bytes"}
    if is_known(tag, request.headers.get("if-none-match")):
        return Response(status_code=304, headers=headers)
    try:
        wanted = _wanted_range(request, file, tag)
    except UnsatisfiableRangeError:
        return json_answer(
            InvalidRequestError(f"The file has {file.bytes:,} bytes.", param="range").wire(),
            status_code=416,
            headers=headers | {"content-range": f"bytes */{file.bytes}"},
        )
    return _download(deployment, file, wanted, headers)


def _download(
    deployment: Deployment, file: File, wanted: ByteRange | None, headers: dict[str, str]
) -> Response:
    whole = ByteRange(start=0, end=file.bytes, size=file.bytes)
    part = wanted or whole
    headers |= {
        "content-length": str(part.end - part.start),
        "content-disposition": f"attachment; filename*=UTF-8''{quote(file.filename, safe='')}",
    }
    if wanted is not None:
        headers["content-range"] = part.header
    stream = deployment.store.open(file.key, start=part.start, end=part.end)
    return StreamingResponse(
        _chunks(stream),
        status_code=206 if wanted else 200,
        headers=headers,
        media_type="application/octet-stream",
    )


def _wanted_range(request: Request, file: File, tag: str) -> ByteRange | None:
    """A range that belongs to another version of the file (If-Range) is not one of this."""
    if request.headers.get("if-range", tag) != tag:
        return None
    return parse_range(request.headers.get("range"), file.bytes)


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    with stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk


def _find(deployment: Deployment, tenant: str, file_id: str) -> File:
    with deployment.database.read() as session:
        return get_file(session, file_id, tenant=tenant)


def _read_purpose(query: QueryParams) -> str | None:
    purpose = query.get("purpose") or None
    if purpose is not None and purpose not in LISTED_PURPOSES:
        raise not_among("purpose", purpose, LISTED_PURPOSES)
    return purpose


async def _receive(upload: Upload, body: AsyncIterator[bytes]) -> File:
    try:
        async for chunk in _gathered(body):
            await run_in_threadpool(upload.feed, chunk)
        return await run_in_threadpool(upload.finish)
    except BaseException as failed:
        with anyio.CancelScope(shield=True):
            await run_in_threadpool(upload.abort, failed)
        raise


async def _gathered(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in pieces that are worth a thread's while."""
    gathered = bytearray()
    async for chunk in body:
        gathered += chunk
        if len(gathered) >= CHUNK_BYTES:
            yield bytes(gathered)
            gathered.clear()
    yield bytes(gathered)


async def _drain(body: AsyncIterator[bytes]) -> None:
    left = DRAINED_BYTES
    async for chunk in body:
        left -= len(chunk)
        if left <= 0:
            return
