"""Whose request it is: every route under `/v1` asks here, before anything of its body is read.

| `Authorization: Bearer …` has | keys are required | they are not |
|---|---|---|
| a key of ours | its tenant | its tenant |
| a key like ours, revoked or never made | 401 | 401 |
| anything else, which clients must send | 401 | the default tenant |
| nothing | 401 | the default tenant |

Keys are looked up at every request, so that a revoked one is refused at once.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.orm import Session

from batchjobs import api_keys
from batchjobs.api.requests import Service
from batchjobs.deployment import Deployment
from batchjobs.errors import AuthenticationError, DatabaseError
from batchjobs.models import DEFAULT_TENANT, ApiKey

_HINT = "Keys are created on the server: `batchjobs keys create NAME`."


def read_tenant(request: Request, deployment: Service) -> str:
    """Raises AuthenticationError."""
    secret = _bearer(request)
    is_ours = secret is not None and secret.startswith(api_keys.PREFIX)
    if not (is_ours or request.app.state.require_keys):
        return DEFAULT_TENANT
    if secret is None:
        raise AuthenticationError(
            "You didn't provide an API key. You need to provide your API key in an Authorization"
            f" header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY). {_HINT}"
        )
    tenant = tenant_of(deployment, lambda session: api_keys.find(session, secret))
    if tenant is None:
        raise AuthenticationError(
            f"Incorrect API key provided: {api_keys.mask(secret)}. {_HINT}",
            code="invalid_api_key",
        )
    return tenant


def check_metrics_token(request: Request, deployment: Service) -> None:
    """Metrics count every tenant's work, so that no tenant's key opens them.

    Raises AuthenticationError.
    """
    token = deployment.settings.metrics_token
    wanted = token.get_secret_value() if token else ""
    if not (wanted or request.app.state.require_keys):
        return
    given = _bearer(request) or ""
    if not wanted or not hmac.compare_digest(given.encode(), wanted.encode()):
        raise AuthenticationError(
            "The metrics need the token of BATCHJOBS_METRICS_TOKEN in an Authorization header"
            " using Bearer auth (i.e. Authorization: Bearer TOKEN)."
        )


Tenant = Annotated[str, Depends(read_tenant)]


def tenant_of(deployment: Deployment, find: Callable[[Session], ApiKey | None]) -> str | None:
    """The tenant of the key that is found, whose use is noted; None without one."""
    clock = deployment.clock
    with deployment.database.read() as session:
        key = find(session)
        if key is None:
            return None
        is_news = api_keys.is_use_news(session, clock, key)
    if is_news:
        with suppress(DatabaseError):  # a full disk need not keep anyone from reading
            deployment.database.transact(lambda session: api_keys.note_use(session, clock, key.id))
    return key.tenant


def _bearer(request: Request) -> str | None:
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return (secret.strip() or None) if scheme.lower() == "bearer" else None
