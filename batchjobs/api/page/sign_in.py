"""`/sign-in` and `/sign-out`: an API key once, then a cookie that is of use to nobody else."""

from __future__ import annotations

from fastapi import APIRouter, Request
from sqlalchemy.orm import Session
from starlette.responses import Response

from batchjobs import api_keys, sign_ins
from batchjobs.api.page.forms import Form
from batchjobs.api.page.views import SIGN_IN_PATH, PageRoute, render, see_other
from batchjobs.api.page.visitor import COOKIE
from batchjobs.api.requests import Service

HOME = "/"
WRONG_KEY = "This key is not one of this server's, or it has been revoked."

router = APIRouter(route_class=PageRoute)


@router.get(SIGN_IN_PATH)
def form(request: Request) -> Response:
    onward = _own_path(request.query_params.get("next"))
    return render(request, "sign_in.html", onward=onward, wrong=None)


@router.post(SIGN_IN_PATH)
def sign_in(deployment: Service, request: Request, fields: Form) -> Response:
    key, onward = fields.get("key", "").strip(), _own_path(fields.get("next"))

    def enter(session: Session) -> str | None:
        found = api_keys.find(session, key)
        return None if found is None else sign_ins.create(session, deployment.clock, found)

    secret = deployment.database.transact(enter) if key else None
    if secret is None:
        return render(request, "sign_in.html", status_code=401, onward=onward, wrong=WRONG_KEY)
    response = see_other(onward)
    response.set_cookie(
        COOKIE,
        secret,
        max_age=int(sign_ins.LIFETIME.total_seconds()),
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )
    return response


@router.post("/sign-out")
def sign_out(deployment: Service, request: Request) -> Response:
    if secret := request.cookies.get(COOKIE):
        deployment.database.transact(lambda session: sign_ins.end(session, secret))
    response = see_other(SIGN_IN_PATH if request.app.state.require_keys else HOME)
    response.delete_cookie(COOKIE)
    return response


def _own_path(path: str | None) -> str:
    """The path, if it leads nowhere else."""
    is_own = path is not None and path.startswith("/") and not path.startswith(("//", "/\\"))
    return path if path and is_own and path.isprintable() else HOME
