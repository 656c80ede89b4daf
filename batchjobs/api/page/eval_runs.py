"""One run of a suite: its verdict and what it stands on, and its answers."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request
from starlette.datastructures import QueryParams
from starlette.responses import Response

from batchjobs.api.page.eval_rows import RunRow
from batchjobs.api.page.views import PageRoute, render
from batchjobs.api.page.visitor import Operating
from batchjobs.api.requests import Service
from batchjobs.evals import history, pins, runs, texts, trends
from batchjobs.evals.outcomes import Missing
from batchjobs.queue import listing
from batchjobs.schedules import firing

PAGE_ANSWERS = 25
MAX_PAGE = 100_000
LOWEST = "lowest"

router = APIRouter(prefix="/evals/runs", route_class=PageRoute)


@router.get("/{run_id}")
def show(deployment: Service, visitor: Operating, request: Request, run_id: str) -> Response:
    with deployment.database.read() as session:
        run = runs.get(session, run_id)
        pinned = {one.id for one in pins.pinned(session, run.suite)}
        row = RunRow(run=run, is_pinned=run.id in pinned)
        baseline = [one for one in pins.baseline_for(session, run) if one.id != run.id]
        usable = [one for one in trends.baseline_of(session, run) if one.id != run.id]
        confirmation = runs.confirmation_of(session, run.id)
        schedule = firing.schedule_of_night(session, run.night)
        jobs = listing.named(session, runs.jobs_of(run), tenant=visitor.tenant)
        now = deployment.clock.now(session)
    return render(
        request,
        "run.html",
        row=row,
        now=now,
        conditions=row.conditions(baseline),
        baseline=usable,
        confirmation=confirmation,
        schedule=schedule,
        jobs=[(job_id, jobs.get(job_id)) for job_id in runs.jobs_of(run)],
    )


@router.get("/{run_id}/answers")
def answers(deployment: Service, visitor: Operating, request: Request, run_id: str) -> Response:
    query = request.query_params
    shown, number = query.get("show", ""), read_page(query)
    missing = Missing(shown) if shown in list(Missing) else None
    with deployment.database.read() as session:
        run = runs.get(session, run_id)
        found = (
            history.answers_page(
                session,
                deployment.store,
                run,
                limit=PAGE_ANSWERS + 1,
                offset=PAGE_ANSWERS * number,
                missing=missing,
                wrong_first=shown == LOWEST,
            )
            if run.answers_key is not None
            else []
        )
        now = deployment.clock.now(session)
    row = RunRow(run=run)
    return render(
        request,
        "run_answers.html",
        row=row,
        now=now,
        shown=missing or (LOWEST if shown == LOWEST else ""),
        counts=row.scores.get("missing", {}),
        records=found[:PAGE_ANSWERS],
        texts=texts,
        number=number,
        first=_link(shown, 0),
        following=_link(shown, number + 1) if len(found) > PAGE_ANSWERS else None,
    )


@router.get("/{run_id}/report")
def report(deployment: Service, visitor: Operating, run_id: str) -> Response:
    """What `batchjobs evals report` writes: a file to keep or to send."""
    from batchjobs.evals.reporting.content import gather
    from batchjobs.evals.reporting.html import html_report

    content = gather(deployment, run_id)
    name = quote(f"{content.run.suite}-{run_id}.html", safe="")
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
    return Response(html_report(content), headers=headers, media_type="text/html")


def read_page(query: QueryParams) -> int:
    """The number of a page, from 0; 0 if it is none."""
    text = query.get("page", "")
    return min(int(text[:9]), MAX_PAGE) if text.isascii() and text.isdigit() else 0


def _link(shown: str, number: int) -> str:
    asked = {"show": shown, "page": str(number) if number else ""}
    return f"?{urlencode({name: value for name, value in asked.items() if value})}"
