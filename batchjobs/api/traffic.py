"""Counts and times requests, by route and not by URL, of which there is no end."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_METHODS = frozenset({"GET", "POST", "DELETE", "HEAD", "PUT", "PATCH", "OPTIONS"})
_NO_ROUTE = "none"
_WAITING = b"wait="


class Traffic:
    """Middleware. A request that asks to be kept waiting is counted, and not timed."""

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        self._app = app
        self._requests = Counter(
            "batchjobs_http_requests",
            "Requests by route and status; without a status, nothing could be answered.",
            ["method", "route", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "batchjobs_http_request_duration_seconds",
            "Time to the end of the answer.",
            ["method", "route"],
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = ""

        async def noting_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, noting_send)
        finally:
            method, route = _names(scope)
            self._requests.labels(method, route, status).inc()
            if _WAITING not in scope["query_string"]:
                self._seconds.labels(method, route).observe(time.perf_counter() - began)


def _names(scope: Scope) -> tuple[str, str]:
    method = scope["method"] if scope["method"] in _METHODS else "other"
    return method, getattr(scope.get("route"), "path", _NO_ROUTE)
