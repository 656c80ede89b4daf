"""Who looks at the page: a browser that is signed in with a key, or anybody where none is needed.

| the browser | keys are required | they are not |
|---|---|---|
| is signed in | its key's tenant | its key's tenant |
| is not, or its key is revoked | is asked to sign in | the default tenant |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from batchjobs import sign_ins
from batchjobs.api.access import tenant_of
from batchjobs.api.requests import Service
from batchjobs.errors import AuthenticationError, NotFoundError
from batchjobs.models import DEFAULT_TENANT

COOKIE = "batchjobs_sign_in"


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    tenant: str
    is_signed_in: bool

    @property
    def is_operator(self) -> bool:
        """May see what is nobody's own, such as workers: it tells of all tenants' work."""
        return self.tenant == DEFAULT_TENANT


class SignInNeededError(AuthenticationError):
    """The page shows nothing to a browser that is not signed in."""


def read_visitor(request: Request, deployment: Service) -> Visitor:
    """Raises SignInNeededError."""
    tenant = None
    if secret := request.cookies.get(COOKIE):
        tenant = tenant_of(
            deployment, lambda session: sign_ins.find_key(session, deployment.clock, secret)
        )
    if tenant is None and request.app.state.require_keys:
        raise SignInNeededError("Sign in with an API key.")
    visitor = Visitor(tenant=tenant or DEFAULT_TENANT, is_signed_in=tenant is not None)
    request.state.visitor = visitor
    return visitor


def read_operator(request: Request, deployment: Service) -> Visitor:
    """Raises SignInNeededError, and NotFoundError for another tenant."""
    visitor = read_visitor(request, deployment)
    if not visitor.is_operator:
        raise NotFoundError("There is no such page.")
    return visitor


Visiting = Annotated[Visitor, Depends(read_visitor)]
Operating = Annotated[Visitor, Depends(read_operator)]
