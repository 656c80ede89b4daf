"""The section of evals: did anything get worse? Every suite on every model, and one suite."""

from __future__ import annotations

from collections import Counter
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request
from sqlalchemy.orm import Session
from starlette.responses import Response

from batchjobs.api.page import eval_compare, eval_runs
from batchjobs.api.page.eval_rows import ModelTrend, RunRow, StandingRow
from batchjobs.api.page.kept_bands import Bands, KeptBands
from batchjobs.api.page.section import Section
from batchjobs.api.page.views import PageRoute, render
from batchjobs.api.page.visitor import Operating
from batchjobs.api.requests import Service
from batchjobs.errors import NotFoundError
from batchjobs.evals import pins, runs, trends
from batchjobs.evals.trends import Standing

PATH = "/evals"
PAGE_RUNS = 30

router = APIRouter(route_class=PageRoute)
router.include_router(eval_runs.router)
router.include_router(eval_compare.router)


@router.get(PATH)
def index(deployment: Service, visitor: Operating, request: Request) -> Response:
    with deployment.database.read() as session:
        rows = [StandingRow.of(each) for each in trends.standings(session)]
        now = deployment.clock.now(session)
    words = Counter(row.judged.word for row in rows if row.judged)
    return render(request, "evals.html", rows=rows, words=words, suite_path=suite_path, now=now)


@router.get(f"{PATH}/suites/{{suite}}")
def suite(
    deployment: Service, visitor: Operating, bands: Bands, request: Request, suite: str
) -> Response:
    query = request.query_params
    model, after = query.get("model") or None, query.get("after") or None
    with deployment.database.read() as session:
        every = trends.standings(session, suite=suite)
        if not every:
            raise NotFoundError("No run of such a suite is here.")
        chosen = [one for one in every if model in (None, one.model)]
        found, has_older = runs.page(
            session, limit=PAGE_RUNS, after=after, suite=suite, model=model
        )
        pinned = {run.id: run.model for run in pins.pinned(session, suite)}
        curves = [] if after else _curves(session, bands, chosen)
        now = deployment.clock.now(session)
    rows = [RunRow(run=run, is_pinned=run.id in pinned) for run in found]
    older = {"model": model, "after": found[-1].id} if has_older else None
    return render(
        request,
        "suite.html",
        suite=suite,
        here=suite_path(suite),
        models=[one.model for one in every],
        model=model,
        standings=[StandingRow.of(one) for one in chosen],
        curves=curves,
        rows=rows,
        pair=_pair(rows),
        baselines=Counter(of for of in pinned.values() if model in (None, of)),
        is_newest=after is None,
        older=f"?{urlencode({k: v for k, v in older.items() if v})}" if older else None,
        now=now,
    )


def suite_path(suite: str) -> str:
    return f"{PATH}/suites/{quote(suite, safe='')}"


SECTION = Section(title="Evals", path=PATH, router=router, is_operators=True)


def _curves(session: Session, bands: KeptBands, standings: list[Standing]) -> list[ModelTrend]:
    found = []
    for one in standings:
        newest = trends.newest_scored(session, one.suite, one.model)
        if newest is None:
            continue
        alike = trends.alike(session, newest, model=one.model)
        points = trends.points(session, newest, alike)
        if points:
            band = bands.of(session, newest)
            found.append(ModelTrend(model=one.model, points=points, band=band))
    return found


def _pair(rows: list[RunRow]) -> tuple[str | None, str | None]:
    """What one would compare: the newest run with scores, against a pinned one of its model, or
    else the one before."""
    scored = [row for row in rows if row.has_scores]
    if len(scored) < 2:
        return None, None
    newest, *others = scored
    same = [row for row in others if row.run.model == newest.run.model] or others
    before = next((row for row in same if row.is_pinned), same[0])
    return before.run.id, newest.run.id
