"""Schedules on a clock that a test moves, and suites that end as it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select

from batchjobs import catalogue
from batchjobs.deployment import Deployment
from batchjobs.errors import UsageError
from batchjobs.notifications.tables import Event
from batchjobs.schedules.desk import Desk
from batchjobs.schedules.firing import tick
from batchjobs.schedules.orders import ScheduleOrder
from batchjobs.schedules.suites import Progress
from tests.support.engines import add_models
from tests.support.jobs import ENDPOINT, MODEL, add_input, clock_of, request_line


@dataclass
class FakeSuites:
    """The twin of `EvalSuites`: its runs go on until a test ends them."""

    started: list[str] = field(default_factory=list)
    nights: dict[str, tuple[str, str]] = field(default_factory=dict)
    ended: dict[str, Progress] = field(default_factory=dict)
    deadlines: list[datetime | None] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    def find(self, night: str, path: str) -> str | None:
        return next((run for run, known in self.nights.items() if known == (night, path)), None)

    def start(self, path: str, *, model: str | None, deadline: datetime | None, night: str) -> str:
        if path in self.broken:
            raise UsageError("line 3: there is no scorer 'exakt'.")
        run_id = f"run_{len(self.started) + 1}"
        self.started.append(run_id)
        self.nights[run_id] = (night, path)
        self.deadlines.append(deadline)
        return run_id

    def look(self, run_id: str, *, deadline: datetime | None) -> Progress:
        return self.ended.get(run_id, Progress(suite="arith", is_ended=False))

    def cancel(self, run_id: str) -> None:
        self.cancelled.append(run_id)

    def end(self, word: str | None, run_id: str | None = None, failure: str | None = None) -> None:
        """End the newest run, or another."""
        self.ended[run_id or self.started[-1]] = Progress(
            suite="arith",
            is_ended=True,
            word=word,
            sentence=word and f"{word}: …",
            failure=failure,
        )


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def set_clock(deployment: Deployment, text: str) -> None:
    clock = clock_of(deployment)
    with deployment.database.read() as session:
        clock.advance(utc(text) - clock.now(session))


def know_model(deployment: Deployment) -> None:
    """Have the lines' model in the catalogue."""
    with deployment.database.read() as session:
        is_known = MODEL in catalogue.names(session)
    if not is_known:
        add_models(deployment, MODEL)


def add_schedule(deployment: Deployment, cron: str = "0 2 * * *", **changes: Any) -> dict[str, Any]:
    """Of a file of one line, unless it has suites."""
    if not changes.get("suites"):
        know_model(deployment)
        changes["file_id"] = add_input(deployment, [request_line("a")]).id
        changes["endpoint"] = ENDPOINT
    return Desk(deployment).add(ScheduleOrder(**{"name": "nightly", "cron": cron, **changes}))


def tick_at(deployment: Deployment, text: str, suites: FakeSuites | None = None) -> None:
    set_clock(deployment, text)
    tick(deployment, suites or FakeSuites())


def slots_of(deployment: Deployment, name: str = "nightly") -> list[dict[str, Any]]:
    """The oldest first."""
    slots: list[dict[str, Any]] = Desk(deployment).history(name, limit=1000)["data"]
    return slots[::-1]


def moments(slots: Sequence[dict[str, Any]]) -> list[str]:
    return [datetime.fromtimestamp(slot["slot_at"], UTC).strftime("%m-%d %H:%M") for slot in slots]


def states(deployment: Deployment, name: str = "nightly") -> list[str]:
    return [slot["status"] for slot in slots_of(deployment, name)]


def told(deployment: Deployment, but: str = "batch.") -> list[str]:
    """Types of events, in their order, without the jobs' own."""
    with deployment.database.read() as session:
        events = session.scalars(select(Event).order_by(Event.created_at, Event.id)).all()
    return [event.type for event in events if not event.type.startswith(but)]
