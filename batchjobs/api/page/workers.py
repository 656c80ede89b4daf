"""The section of workers: who is there, what each does, and the last hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fastapi import APIRouter, Request
from starlette.responses import Response

from batchjobs.api.page.section import Section
from batchjobs.api.page.views import PageRoute, render
from batchjobs.api.page.visitor import Operating
from batchjobs.api.requests import Service
from batchjobs.models import Worker
from batchjobs.queue import census, samples, workers
from batchjobs.queue.samples import MINUTES, SECONDS_PER_MINUTE, History

MAX_CHART_MODELS = 6
"""More lines than that nobody can tell apart: the models with the fewest tokens are one."""
OTHERS = "others"

router = APIRouter(route_class=PageRoute)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Tokens a second by model, minute by minute; `minutes` are their beginnings."""

    minutes: tuple[datetime, ...]
    rates: dict[str, tuple[float | None, ...]]

    @classmethod
    def of(cls, history: History) -> Chart:
        models = sorted(history.tokens, key=lambda model: -sum(history.tokens[model]))
        shown, rest = models[:MAX_CHART_MODELS], models[MAX_CHART_MODELS:]
        rates = {model: tuple(history.rates(model)) for model in shown}
        if rest:
            each = [history.rates(model) for model in rest]
            rates[OTHERS] = tuple(map(_sum, zip(*each, strict=True)))
        first = history.first_minute
        return cls(
            minutes=tuple(
                datetime.fromtimestamp(minute * SECONDS_PER_MINUTE, UTC)
                for minute in range(first, first + MINUTES)
            ),
            rates=rates,
        )

    @property
    def peak(self) -> float:
        """The highest rate of all models together in any minute."""
        totals = map(_sum, zip(*self.rates.values(), strict=True))
        return max((total for total in totals if total is not None), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Of the live workers together. `rate` is what those that have work now do."""

    running: int
    waiting: int
    rate: float

    @classmethod
    def of(cls, found: list[Worker]) -> Totals:
        return cls(
            running=sum(worker.running for worker in found),
            waiting=sum(worker.waiting for worker in found),
            rate=sum(worker.tokens_per_second or 0.0 for worker in found if is_busy(worker)),
        )


def _sum(rates: Sequence[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if len(known) == len(rates) else None


def is_busy(worker: Worker) -> bool:
    return worker.running + worker.waiting > 0


@router.get("/workers")
def index(deployment: Service, visitor: Operating, request: Request) -> Response:
    with deployment.database.read() as session:
        found = list(
            workers.live(session, deployment.clock, lease_seconds=deployment.settings.lease_seconds)
        )
        history = samples.history(session, deployment.clock)
        lines = census.take(session)
        now = deployment.clock.now(session)
    return render(
        request,
        "workers.html",
        workers=found,
        totals=Totals.of(found),
        is_busy=is_busy,
        queued=lines.queued_lines,
        chart=Chart.of(history),
        now=now,
    )


SECTION = Section(title="Workers", path="/workers", router=router, is_operators=True)
