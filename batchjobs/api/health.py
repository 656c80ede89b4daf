"""Whether the process lives, and whether it can serve."""

from __future__ import annotations

import logging
from collections.abc import Callable

from fastapi import APIRouter
from starlette.responses import Response

from batchjobs.api.answers import json_answer
from batchjobs.api.requests import Care, Service
from batchjobs.errors import BatchJobsError
from batchjobs.store.layout import FILES_PREFIX

router = APIRouter()

logger = logging.getLogger(__name__)


@router.get("/healthz")
def healthz() -> Response:
    """Touches nothing: a server whose database is away must not be restarted for it."""
    return json_answer({"status": "ok"})


@router.get("/readyz")
def readyz(deployment: Service, caretaker: Care) -> Response:
    """200 if the database and the store answer and the caretaker runs, else 503."""

    def ask_store() -> None:
        next(deployment.store.list(FILES_PREFIX), None)

    checks = {
        "database": _works(deployment.database.ping),
        "store": _works(ask_store),
        "caretaker": caretaker.is_running,
    }
    words = {name: "ok" if works else "failed" for name, works in checks.items()}
    ready = all(checks.values())
    status = "ok" if ready else "unavailable"
    return json_answer({"status": status, "checks": words}, status_code=200 if ready else 503)


def _works(ask: Callable[[], None]) -> bool:
    try:
        ask()
    except BatchJobsError as failed:
        logger.error("Not ready: %s", failed)
        return False
    return True
