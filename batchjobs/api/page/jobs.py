"""The section of jobs: all of them, and one with what may be done to it."""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.datastructures import QueryParams
from starlette.responses import Response, StreamingResponse

from batchjobs.api.files import answer_content
from batchjobs.api.page import job_results
from batchjobs.api.page.made_by import made_by
from batchjobs.api.page.rows import NO_AHEAD, Ahead, JobRow
from batchjobs.api.page.search import read_search
from batchjobs.api.page.section import Section
from batchjobs.api.page.views import PageRoute, render, see_other
from batchjobs.api.page.visitor import Visiting
from batchjobs.api.requests import Ahead as Forecasting
from batchjobs.api.requests import Care, Service
from batchjobs.errors import NotFoundError
from batchjobs.files import get_file
from batchjobs.queue import jobs, listing
from batchjobs.queue.listing import JobsPage, Place, Wanted
from batchjobs.results import results_so_far
from batchjobs.retry import retry
from batchjobs.states import TERMINAL, JobState

PAGE_JOBS = 50
SHOWN_PROBLEMS = 50

FILTERS: dict[str, tuple[JobState, ...]] = {
    "all": (),
    "open": tuple(state for state in JobState if state not in TERMINAL),
    "completed": (JobState.COMPLETED,),
    "failed": (JobState.FAILED,),
    "expired": (JobState.EXPIRED,),
    "cancelled": (JobState.CANCELLED,),
}
_ACTIONS = ("cancel", "retry")
_FILES = ("input", "output", "error")

router = APIRouter(route_class=PageRoute)
router.include_router(job_results.router)


@router.get("/")
def index(
    deployment: Service, visitor: Visiting, forecast: Forecasting, request: Request
) -> Response:
    query = request.query_params
    state = query.get("status", "")
    state = state if state in FILTERS else "all"
    search = read_search(query)
    ahead = Ahead.of(forecast)
    with deployment.database.read() as session:
        wanted = Wanted(tenant=visitor.tenant, states=FILTERS[state], words=search.split())
        found = listing.page(
            session,
            wanted,
            limit=PAGE_JOBS,
            older_than=_place(query, "older"),
            newer_than=_place(query, "newer"),
        )
        numbers = listing.count(session, visitor.tenant)
        now = deployment.clock.now(session)
    asked = {"status": "" if state == "all" else state, "q": search}
    return render(
        request,
        "jobs.html",
        rows=[JobRow.of(listed, ahead) for listed in found.jobs],
        now=now,
        state=state,
        search=search,
        filters=_filters(numbers, search),
        total=sum(numbers.values()),
        newer=_link(asked, "newer", found) if found.has_newer else None,
        older=_link(asked, "older", found) if found.has_older else None,
        here=_query(asked | {name: query.get(name, "") for name in ("older", "newer")}),
    )


@router.get("/jobs/{job_id}")
def show(
    deployment: Service,
    visitor: Visiting,
    forecast: Forecasting,
    kept: job_results.Kept,
    request: Request,
    job_id: str,
) -> Response:
    ahead = Ahead.of(forecast)
    with deployment.database.read() as session:
        job = jobs.get(session, job_id, tenant=visitor.tenant)
        row = JobRow.of(listing.find(session, job), ahead)
        maker = made_by(session, job, visitor)
        problems = jobs.errors(session, job_id) if job.status == JobState.FAILED else ()
        now = deployment.clock.now(session)
    return render(
        request,
        "job.html",
        row=row,
        now=now,
        made_by=maker,
        problems=problems[:SHOWN_PROBLEMS],
        problem_count=len(problems),
        reasons=job_results.reasons_of(kept, row),
        preview=job_results.first_answers(deployment, row),
    )


@router.get("/jobs/{job_id}/{action}")
def ask(
    deployment: Service, visitor: Visiting, request: Request, job_id: str, action: str
) -> Response:
    """Whether it is meant, for browsers without scripts; others ask in a dialog."""
    if action not in _ACTIONS:
        raise NotFoundError("There is no such page.")
    with deployment.database.read() as session:
        job = jobs.get(session, job_id, tenant=visitor.tenant)
        row = JobRow.of(listing.find(session, job), NO_AHEAD)
    return render(request, "ask.html", row=row, action=action)


@router.post("/jobs/{job_id}/cancel")
def cancel(deployment: Service, visitor: Visiting, caretaker: Care, job_id: str) -> Response:
    deployment.database.transact(
        lambda session: jobs.cancel(session, deployment.clock, job_id, tenant=visitor.tenant)
    )
    caretaker.ring()
    return see_other(f"/jobs/{job_id}")


@router.post("/jobs/{job_id}/retry")
def retry_unanswered(
    deployment: Service, visitor: Visiting, caretaker: Care, job_id: str
) -> Response:
    job = retry(deployment, job_id, tenant=visitor.tenant)
    caretaker.ring()
    return see_other(f"/jobs/{job.id}")


@router.get("/jobs/{job_id}/files/{kind}")
def download(
    deployment: Service, visitor: Visiting, request: Request, job_id: str, kind: str
) -> Response:
    """The job's input, output or error file; `so-far` is what is finished of a job that runs."""
    if kind == "so-far":
        found = results_so_far(deployment, job_id, tenant=visitor.tenant)
        headers = {"content-disposition": f'attachment; filename="{job_id}_so_far.jsonl"'}
        return StreamingResponse(found.lines, headers=headers, media_type="application/jsonl")
    if kind not in _FILES:
        raise NotFoundError("There is no such file.")
    with deployment.database.read() as session:
        job = jobs.get(session, job_id, tenant=visitor.tenant)
        file_id: str | None = getattr(job, f"{kind}_file_id")
        if file_id is None:
            raise NotFoundError(f"This job has no {kind} file.")
        file = get_file(session, file_id, tenant=visitor.tenant)
    return answer_content(deployment, request, file)


SECTION = Section(title="Jobs", path="/", router=router)


def _place(query: QueryParams, name: str) -> Place | None:
    return Place.read(query.get(name, ""))


def _filters(numbers: dict[JobState, int], search: str) -> list[tuple[str, int, str]]:
    """Name, number of jobs and link of each."""
    return [
        (
            name,
            sum(numbers.get(state, 0) for state in states or JobState),
            _query({"status": "" if name == "all" else name, "q": search}),
        )
        for name, states in FILTERS.items()
    ]


def _link(asked: dict[str, str], direction: str, found: JobsPage) -> str:
    if not found.jobs:
        return _query(asked)
    edge = found.jobs[0 if direction == "newer" else -1]
    return _query(asked | {direction: str(Place.of(edge.job))})


def _query(asked: dict[str, str]) -> str:
    """A link to the list; what is not asked for is not in it."""
    text = urlencode({name: value for name, value in asked.items() if value})
    return f"/?{text}" if text else "/"
