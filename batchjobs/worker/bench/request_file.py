"""A file of requests as a workload. Every line must be one that would run."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from batchjobs.endpoints import ENDPOINTS
from batchjobs.endpoints.base import LineContext, ModelContext, check_task
from batchjobs.endpoints.drafts import prepare_alone
from batchjobs.envelope import read_body
from batchjobs.errors import InvalidFileError, InvalidRequestError
from batchjobs.jsonl import RawLine, parse_object, read_lines
from executor.request import Request


def read_requests(
    path: Path, model: ModelContext, *, count: int | None, max_line_bytes: int
) -> list[Request]:
    """The engine's requests of the first `count` lines. Models that lines name do not matter.

    Raises:
        InvalidFileError: a line cannot run, or there is none.
    """
    requests: list[Request] = []
    lines = 0
    with path.open("rb") as stream:
        for raw in read_lines(stream, max_line_bytes):
            if lines == count:
                break
            lines += 1
            requests += _prepare(raw, path, model)
    if not requests:
        raise InvalidFileError(f"{path} has no requests.")
    return requests


def _prepare(raw: RawLine, path: Path, model: ModelContext) -> list[Request]:
    try:
        if raw.data is None:
            raise InvalidRequestError("it is too long.")
        line = parse_object(raw.data)
        url = line.get("url")
        if url not in ENDPOINTS:
            raise InvalidRequestError(f"its url is none of {', '.join(ENDPOINTS)}.")
        body = read_body(line, url=url, model_override=model.name)
        endpoint = ENDPOINTS[url]
        if problem := endpoint.check(body):
            raise InvalidRequestError(problem.message)
        check_task(endpoint, model)
        prepared = prepare_alone(endpoint, body, _context(raw.number), model)
    except InvalidRequestError as wrong:
        raise InvalidFileError(f"{path}, line {raw.number}: {wrong.message}") from wrong
    return [replace(request, id=f"{raw.number}:{request.id}") for request in prepared]


def _context(number: int) -> LineContext:
    digest = hashlib.blake2b(str(number).encode(), digest_size=16)
    return LineContext(id=digest.hexdigest(), created=0, seed=number)
