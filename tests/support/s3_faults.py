"""Faults between a boto3 client and its server, one request after the other."""

from __future__ import annotations

import io
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError
from urllib3.exceptions import ProtocolError

Send = Callable[[], AWSResponse]
Fault = Callable[[Any, Send], AWSResponse | None]
"""Answers a request in the server's place, or raises; `send` is what would have happened."""


class Faults:
    """`requests` are those that were made, faulty or not, by operation."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._planned: dict[str, deque[Fault]] = defaultdict(deque)
        self.requests: dict[str, list[Any]] = defaultdict(list)

    def plan(self, operation: str, *faults: Fault) -> None:
        """The next requests of the operation meet these, the ones after them none."""
        self._planned[operation].extend(faults)

    @contextmanager
    def active(self) -> Iterator[Faults]:
        events = self._client.meta.events
        events.register("before-send.s3", self._meet)
        try:
            yield self
        finally:
            events.unregister("before-send.s3", self._meet)

    def _meet(self, request: Any, event_name: str, **_: object) -> AWSResponse | None:
        operation = event_name.rpartition(".")[2]
        self.requests[operation].append(request)
        planned = self._planned[operation]
        session = self._client._endpoint.http_session
        return planned.popleft()(request, lambda: session.send(request)) if planned else None


def passes(_: Any, send: Send) -> AWSResponse:
    return send()


def lost_request(request: Any, _: Send) -> AWSResponse:
    raise ConnectionClosedError(endpoint_url=request.url)


def lost_answer(request: Any, send: Send) -> AWSResponse:
    send()
    raise ConnectionClosedError(endpoint_url=request.url)


def error(status: int, code: str) -> Fault:
    """The server refuses; nothing is done."""
    return lambda request, _: _error(request, status, code)


def error_when_done(status: int, code: str) -> Fault:
    """The server does what was asked and reports an error."""

    def answer(request: Any, send: Send) -> AWSResponse:
        send()
        return _error(request, status, code)

    return answer


def after(act: Callable[[], object], fault: Fault) -> Fault:
    """Something else happens just before."""

    def answer(request: Any, send: Send) -> AWSResponse | None:
        act()
        return fault(request, send)

    return answer


def cut_body(count: int, *, silently: bool = False) -> Fault:
    """The connection breaks after `count` bytes of the body; silently: as if they were all."""

    def answer(_: Any, send: Send) -> AWSResponse:
        whole = send()
        raw = _CutBody(whole.raw, count, silently=silently)
        return AWSResponse(whole.url, whole.status_code, whole.headers, raw)

    return answer


class _Raw(Protocol):
    def read(self, amt: int | None = None) -> bytes: ...

    def close(self) -> None: ...


class _CutBody:
    def __init__(self, whole: _Raw, count: int, *, silently: bool) -> None:
        self._whole = whole
        self._left = count
        self._silently = silently

    def read(self, amt: int | None = None) -> bytes:
        if self._left == 0 and not self._silently:
            raise ProtocolError("Connection broken: reset by peer")
        wanted = self._left if amt is None else min(amt, self._left)
        data = self._whole.read(wanted) if wanted else b""
        self._left -= len(data)
        return data

    def close(self) -> None:
        self._whole.close()


class _Body(io.BytesIO):
    def stream(self, **_: object) -> Iterator[bytes]:
        yield self.read()


def _error(request: Any, status: int, code: str) -> AWSResponse:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>m</Message></Error>".encode()
    return AWSResponse(request.url, status, {"content-type": "application/xml"}, _Body(body))
