"""The section of schedules: when each runs next, how it went, and one with its history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from batchjobs.api.page.schedule_rows import ScheduleRow
from batchjobs.api.page.section import Section
from batchjobs.api.page.views import PageRoute, render, see_other
from batchjobs.api.page.visitor import Visiting
from batchjobs.api.requests import Care, Service
from batchjobs.deployment import Deployment
from batchjobs.errors import NotFoundError
from batchjobs.queue import schedules, slots
from batchjobs.schedules.desk import Desk

PAGE_SLOTS = 30
PATH = "/schedules"

_ASKED = ("run", "remove")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MAX_MICROSECONDS = 2**53

router = APIRouter(prefix=PATH, route_class=PageRoute)


def _desk(deployment: Service, visitor: Visiting) -> Desk:
    return Desk(deployment, visitor.tenant)


TheDesk = Annotated[Desk, Depends(_desk)]


@router.get("")
def index(deployment: Service, visitor: Visiting, request: Request) -> Response:
    with deployment.database.read() as session:
        now = deployment.clock.now(session)
        found = schedules.every(session, tenant=visitor.tenant)
        rows = [ScheduleRow.read(session, each, now) for each in found]
    return render(request, "schedules.html", rows=rows, now=now)


@router.get("/{name}")
def show(deployment: Service, visitor: Visiting, request: Request, name: str) -> Response:
    before = _read_moment(request.query_params.get("before", ""))
    with deployment.database.read() as session:
        now = deployment.clock.now(session)
        schedule = schedules.get(session, name, tenant=visitor.tenant)
        row = ScheduleRow.read(session, schedule, now)
        found, has_older = slots.history(session, schedule.id, limit=PAGE_SLOTS, before=before)
    return render(
        request,
        "schedule.html",
        row=row,
        now=now,
        slots=row.slots(found),
        is_newest=before is None,
        here=row.path if before is None else f"{row.path}?before={_moment(before)}",
        older=f"{row.path}?before={_moment(found[-1].slot_at)}" if has_older else None,
    )


@router.get("/{name}/{action}")
def ask(
    deployment: Service, visitor: Visiting, request: Request, name: str, action: str
) -> Response:
    """Whether it is meant, for browsers without scripts; others ask in a dialog."""
    if action not in _ASKED:
        raise NotFoundError("There is no such page.")
    row = _row(deployment, visitor.tenant, name)
    return render(request, "schedule_ask.html", row=row, action=action)


@router.post("/{name}/pause")
def pause(desk: TheDesk, name: str) -> Response:
    desk.pause(name)
    return see_other(f"{PATH}/{name}")


@router.post("/{name}/resume")
def resume(desk: TheDesk, name: str) -> Response:
    desk.resume(name)
    return see_other(f"{PATH}/{name}")


@router.post("/{name}/run")
def run(desk: TheDesk, caretaker: Care, name: str) -> Response:
    desk.run(name)
    caretaker.ring_for_schedules()
    return see_other(f"{PATH}/{name}")


@router.post("/{name}/remove")
def remove(desk: TheDesk, name: str) -> Response:
    desk.remove(name)
    return see_other(PATH)


SECTION = Section(title="Schedules", path=PATH, router=router)


def _row(deployment: Deployment, tenant: str, name: str) -> ScheduleRow:
    with deployment.database.read() as session:
        schedule = schedules.get(session, name, tenant=tenant)
        return ScheduleRow.read(session, schedule, deployment.clock.now(session))


def _moment(moment: datetime) -> int:
    """In microseconds, as two slots asked for by hand may be of one second."""
    return (moment - _EPOCH) // _MICROSECOND


def _read_moment(text: str) -> datetime | None:
    """What `_moment` gave; None if it is something else."""
    if not (text.isascii() and text.isdigit()) or int(text[:20]) > _MAX_MICROSECONDS:
        return None
    return _EPOCH + int(text) * _MICROSECOND
