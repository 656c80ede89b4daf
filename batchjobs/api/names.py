"""By which names this server may be asked where it needs no keys.

A website can have its own name lead to this address (DNS rebinding): a browser then takes what is
here for that site's own, and lets its scripts read it. Such a request names the site as its `Host`.
A number is nobody's name, and a server that needs keys gives nothing to who has none.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from batchjobs.api.answers import json_answer
from batchjobs.errors import InvalidRequestError
from batchjobs.settings import Settings

LOCALHOST = "localhost"


class UnknownNameError(InvalidRequestError):
    """Asked by a name that is not known for this server's."""

    status_code = 403


class Names:
    """Middleware that answers 403 for another `Host` than a number, localhost or one of `names`."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = {LOCALHOST, *(name.lower().rstrip(".") for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_known(Headers(scope=scope).get("host", "")):
            await self._app(scope, receive, send)
            return
        refused = UnknownNameError(
            "This server is not known by the name in this request's Host, and needs no keys: ask it"
            " by its address, or add the name to BATCHJOBS_ALLOWED_HOSTS where it is started."
        )
        answer = json_answer(refused.wire(), status_code=refused.status_code)
        await answer(scope, receive, send)

    def _is_known(self, host: str) -> bool:
        name = _name_of(host)
        return name is not None and (name in self._names or _is_number(name))


def names_of(host: str, settings: Settings) -> tuple[str, ...]:
    """Of a server that listens on `host`: that, this machine's own name, and what is set."""
    return (host, socket.gethostname(), *settings.allowed_host_names)


def _name_of(host: str) -> str | None:
    """Without the port, in lower case; None if it is no host."""
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return None
    return None if name is None else name.rstrip(".")


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
