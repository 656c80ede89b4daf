"""Two runs of a suite beside each other: what broke, what is fixed, with both answers."""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from batchjobs.api.page.eval_rows import RunRow
from batchjobs.api.page.eval_runs import read_page
from batchjobs.api.page.views import PageRoute, render
from batchjobs.api.page.visitor import Operating
from batchjobs.api.requests import Service
from batchjobs.evals import runs, texts

PAGE_FLIPS = 20
WAYS = {"all": None, "broken": True, "fixed": False}

router = APIRouter(prefix="/evals/compare", route_class=PageRoute)


@router.get("")
def compare(deployment: Service, visitor: Operating, request: Request) -> Response:
    """`?before=RUN&after=RUN`, and if you like `tag`, `way` and `page`."""
    from batchjobs.evals.comparing import compare_runs

    query = request.query_params
    tag, way, number = query.get("tag") or None, query.get("way", ""), read_page(query)
    way = way if way in WAYS else "all"
    with deployment.database.read() as session:
        before = runs.get(session, query.get("before", ""))
        after = runs.get(session, query.get("after", ""))
        now = deployment.clock.now(session)
    found = compare_runs(
        deployment,
        before,
        after,
        tag=tag,
        only_broken=WAYS[way],
        skip=PAGE_FLIPS * number,
        texts=PAGE_FLIPS,
    )
    broken = sum(flip.is_broken for flip in found.flips)
    counts = {"all": len(found.flips), "broken": broken, "fixed": len(found.flips) - broken}

    def link(**changes: str | int | None) -> str:
        asked = {"before": before.id, "after": after.id, "tag": tag, "way": way, **changes}
        if asked["way"] == "all":
            asked["way"] = None
        return f"?{urlencode({name: value for name, value in asked.items() if value})}"

    has_more = PAGE_FLIPS * (number + 1) < counts[way]
    return render(
        request,
        "compare.html",
        before=RunRow(run=before),
        after=RunRow(run=after),
        found=found,
        texts=texts,
        tag=tag,
        way=way,
        counts=counts,
        link=link,
        swapped=f"?{urlencode({'before': after.id, 'after': before.id})}",
        tags=list((after.scores or {}).get(found.metric, {}).get("tags", {})),
        number=number,
        following=link(page=number + 1) if has_more else None,
        now=now,
    )
