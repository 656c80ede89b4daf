"""What came of one job's lines: the answers and the failed lines, with a search."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from batchjobs import browse
from batchjobs.api.page.kept_reasons import KeptReasons
from batchjobs.api.page.rows import NO_AHEAD, JobRow
from batchjobs.api.page.search import read_search
from batchjobs.api.page.views import PageRoute, render
from batchjobs.api.page.visitor import Visiting
from batchjobs.api.requests import Service
from batchjobs.browse import Cursor, Query, Reasons, Shown
from batchjobs.deployment import Deployment
from batchjobs.errors import NotFoundError, ObjectMissingError
from batchjobs.queue import jobs, listing
from batchjobs.states import TERMINAL

PAGE_RESULTS = 25
PREVIEW = 3

_DELETED = "The file with these lines has been deleted."
_JUST_ENDED = "The job has just ended; look again in a moment."

router = APIRouter(route_class=PageRoute)


def _kept_reasons(request: Request) -> KeptReasons:
    kept: KeptReasons = request.app.state.kept_reasons
    return kept


Kept = Annotated[KeptReasons, Depends(_kept_reasons)]


@router.get("/jobs/{job_id}/answers")
def answers(deployment: Service, visitor: Visiting, request: Request, job_id: str) -> Response:
    return _results(deployment, visitor.tenant, request, job_id, failed=False)


@router.get("/jobs/{job_id}/failed")
def failed(deployment: Service, visitor: Visiting, request: Request, job_id: str) -> Response:
    return _results(deployment, visitor.tenant, request, job_id, failed=True)


def reasons_of(kept: KeptReasons, row: JobRow) -> Reasons | None:
    """Why lines of the job failed so far; None if there are none, or their file is gone."""
    job = row.job
    has_any = row.tally.failed if job.status not in TERMINAL else job.error_file_id
    if not has_any:
        return None
    try:
        return kept.of(job, row.tally.failed)
    except (NotFoundError, ObjectMissingError):
        return None


def first_answers(deployment: Deployment, row: JobRow) -> tuple[Shown, ...]:
    """A few, to see what kind of answers come; none while there are none, or they are gone."""
    if not row.tally.completed:
        return ()
    try:
        return browse.page(deployment, row.job, Query(failed=False), limit=PREVIEW).results
    except (NotFoundError, ObjectMissingError):
        return ()


def _results(
    deployment: Deployment, tenant: str, request: Request, job_id: str, *, failed: bool
) -> Response:
    asked = request.query_params
    search = read_search(asked)
    code = (asked.get("code") or None) if failed else None
    with deployment.database.read() as session:
        job = jobs.get(session, job_id, tenant=tenant)
        row = JobRow.of(listing.find(session, job), NO_AHEAD)
        now = deployment.clock.now(session)
    query = Query(failed=failed, words=search, code=code)
    start = Cursor.read(asked.get("from", ""))
    notice, found = None, browse.NOTHING
    try:
        found = browse.page(deployment, job, query, limit=PAGE_RESULTS, start=start)
    except NotFoundError:
        notice = _DELETED
    except ObjectMissingError:
        notice = _JUST_ENDED
    return render(
        request,
        "results.html",
        row=row,
        now=now,
        failed=failed,
        search=search,
        code=code,
        found=found,
        notice=notice,
        is_first=start == Cursor(),
        first=_link(request, q=search, code=code),
        following=_link(request, q=search, code=code, **{"from": str(found.following)})
        if found.following
        else None,
    )


def _link(request: Request, **asked: str | None) -> str:
    text = urlencode({name: value for name, value in asked.items() if value})
    path = request.url.path
    return f"{path}?{text}" if text else path
