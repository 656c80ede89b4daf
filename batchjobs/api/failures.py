"""Whatever goes wrong, the answer is the public API's error body with all four keys.

What is wrong with a request is said in full. What is wrong here goes to the log, under the
request's id; the caller is told that id and nothing of our paths and addresses.
"""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from batchjobs.api.answers import json_answer
from batchjobs.errors import AuthenticationError, BatchJobsError, InvalidRequestError

logger = logging.getLogger(__name__)

_SERVER_ERRORS = 500
_CHALLENGE = {"www-authenticate": "Bearer"}


class _HttpError(InvalidRequestError):
    """What the framework refuses before a route is found."""

    def __init__(self, status_code: int, message: str, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.status_code = status_code


def install(app: FastAPI) -> None:
    app.add_exception_handler(BatchJobsError, _answer)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(Exception, _answer)


async def _answer(request: Request, error: Exception) -> Response:
    told = tell(request, error)
    headers = _CHALLENGE if isinstance(told, AuthenticationError) else None
    return json_answer(told.wire(), status_code=told.status_code, headers=headers)


def tell(request: Request, error: Exception) -> BatchJobsError:
    """What the caller is told of it; what is wrong here goes to the log."""
    if isinstance(error, BatchJobsError) and error.status_code < _SERVER_ERRORS:
        return error
    request_id = getattr(request.state, "request_id", "unknown")
    logger.error(
        "%s %s failed",
        request.method,
        request.url.path,
        exc_info=error,
        extra={"request_id": request_id},
    )
    return BatchJobsError(
        f"The server had an error while processing your request (request id {request_id})."
    )


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    method, path = request.method, request.url.path
    match error.status_code:
        case 404:
            told = _HttpError(404, f"Invalid URL ({method} {path})")
        case 405:
            told = _HttpError(405, f"Not allowed to {method} on {path}.", "method_not_supported")
        case status:
            told = _HttpError(status, error.detail)
    return json_answer(told.wire(), status_code=told.status_code, headers=error.headers)
