"""Whether a request that changes something is a person's own wish, or another site's.

Browsers say where a request comes from, and pages cannot lie about it: `Sec-Fetch-Site`, or on
addresses that they take for insecure, `Origin` alone. (The method is that of Go's
`http.CrossOriginProtection`.)

| the request says | the API | the page |
|---|---|---|
| that it is of our own page | taken | taken |
| that it is of another site | 403 | 403 |
| neither, as what is no browser | taken | 403 |

A site can send a form to this address without being asked by anybody; where no key is needed, that
would be enough to cancel a batch.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import Request

from batchjobs.errors import InvalidRequestError

_SAFE_METHODS = frozenset({"GET", "HEAD"})


class ForeignOriginError(InvalidRequestError):
    """Another site wants something changed here."""

    status_code = 403


def check_is_ours(request: Request) -> None:
    """Of the page: a browser is to say that the page itself sent it. Raises ForeignOriginError."""
    if request.method not in _SAFE_METHODS and _is_ours(request) is not True:
        raise ForeignOriginError(
            "This can only be done from the page itself; open it, and try again."
        )


def check_is_not_foreign(request: Request) -> None:
    """Of the API, whose clients are no browsers. Raises ForeignOriginError."""
    if request.method not in _SAFE_METHODS and _is_ours(request) is False:
        raise ForeignOriginError(
            "A browser sent this request for another website, which may change nothing here: send"
            " it from a program, or from this server's own page."
        )


def _is_ours(request: Request) -> bool | None:
    """None if nothing is said. A person who types an address (`none`) sends nothing unsafe."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    if origin is None:
        return None
    return bool(origin) and urlsplit(origin).netloc == request.headers.get("host")
