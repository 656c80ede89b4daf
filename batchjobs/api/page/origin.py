"""Whether a request that changes something comes from a page of ours.

Browsers say where a request comes from, and pages cannot lie about it: `Sec-Fetch-Site`, or on
addresses that they take for insecure, `Origin` alone. What says neither is no browser, and has the
API. (The method is that of Go's `http.CrossOriginProtection`.)
"""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import Request

from batchjobs.errors import InvalidRequestError

_SAFE_METHODS = frozenset({"GET", "HEAD"})


class ForeignOriginError(InvalidRequestError):
    """Another site wants something changed here."""

    status_code = 403


def check_origin(request: Request) -> None:
    """Raises ForeignOriginError."""
    if request.method in _SAFE_METHODS or _is_ours(request):
        return
    raise ForeignOriginError("This can only be done from the page itself; open it, and try again.")


def _is_ours(request: Request) -> bool:
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin", "")
    return bool(origin) and urlsplit(origin).netloc == request.headers.get("host")
