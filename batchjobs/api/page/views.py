"""Templates → answers, with what every answer of the page says to the browser.

A request of htmx, which has the page already, is answered with the part of it that changes: the
template's block `live`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from fastapi import Request
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import RedirectResponse, Response

from batchjobs import __version__
from batchjobs.api import failures
from batchjobs.api.origin import check_is_ours
from batchjobs.api.page import eval_words, words
from batchjobs.api.page.assets import asset_url
from batchjobs.api.page.visitor import SignInNeededError

SIGN_IN_PATH = "/sign-in"
LIVE = "live"

_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "same-origin",
    "vary": "HX-Request, Cookie",
    "x-content-type-options": "nosniff",
}
_FILTERS = (
    words.count,
    words.cut,
    words.duration,
    words.exact,
    words.line,
    words.percent,
    words.plural,
    words.rate,
    words.relative,
    words.size,
    eval_words.figure,
    eval_words.p_value,
    eval_words.point_span,
    eval_words.points,
    eval_words.score,
    eval_words.sight,
    eval_words.smallest,
    eval_words.span,
    eval_words.utc,
    eval_words.verdict_tone,
)


class PageRoute(APIRoute):
    """Whatever goes wrong, the answer is a page as well; and none is taken for another site's."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                check_is_ours(request)
                response = await handle(request)
            except SignInNeededError:
                response = _to_sign_in(request)
            except Exception as failed:
                told = failures.tell(request, failed)
                response = render(
                    request, "error.html", status_code=told.status_code, message=told.message
                )
            for name, value in _HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return answer


def render(request: Request, template: str, *, status_code: int = 200, **context: Any) -> Response:
    """The page, or the live part of it."""
    found = _environment().get_template(template)
    known = {
        "visitor": getattr(request.state, "visitor", None),
        "path": request.url.path,
        "url": address(request),
        "needs_keys": request.app.state.require_keys,
        "sections": request.app.state.sections,
        **context,
    }
    if is_partial(request) and LIVE in found.blocks:
        block = found.blocks[LIVE](found.new_context(known))
        return Response("".join(block), status_code, media_type="text/html")
    return Response(found.render(known), status_code, media_type="text/html")


def is_partial(request: Request) -> bool:
    return request.headers.get("hx-request") == "true"


def see_other(path: str) -> Response:
    """What a form that was sent is answered with."""
    return RedirectResponse(path, status_code=303)


def address(request: Request) -> str:
    """The server's URL as the browser knows it."""
    return str(request.base_url).rstrip("/")


def _to_sign_in(request: Request) -> Response:
    path = SIGN_IN_PATH
    if request.method == "GET":
        path += f"?next={quote(_seen(request), safe='/')}"
    if is_partial(request):
        return Response(headers={"hx-redirect": path})
    return see_other(path)


def _seen(request: Request) -> str:
    """What the browser has in its address bar, or is about to."""
    told = request.headers.get("hx-current-url", "") if is_partial(request) else str(request.url)
    try:
        url = urlsplit(told)
    except ValueError:
        return "/"
    return (url.path or "/") + (f"?{url.query}" if url.query else "")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update({function.__name__: function for function in _FILTERS})
    environment.globals.update(asset=asset_url, version=__version__)
    return environment
