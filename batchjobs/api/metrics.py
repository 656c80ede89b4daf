"""`/metrics`: the queue in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fastapi import APIRouter
from starlette.responses import Response

from batchjobs.api.requests import Service
from batchjobs.queue import census
from batchjobs.queue.census import Census

_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

router = APIRouter()


@router.get("/metrics")
def metrics(deployment: Service) -> Response:
    with deployment.database.read() as session:
        found = census.take(session)
    return Response("\n".join([*_lines(found), ""]), media_type=_MEDIA_TYPE)


def _lines(found: Census) -> Iterator[str]:
    yield from _family("jobs", "Jobs by status.", "status", found.jobs)
    yield from _family("queued_lines", "Lines that wait.", "model", found.queued_lines)
    yield from _family("running_lines", "Lines that workers hold.", "model", found.running_lines)
    if found.nearest_deadline is not None:
        name = "batchjobs_nearest_deadline_timestamp_seconds"
        yield f"# HELP {name} When the first unfinished job expires."
        yield f"# TYPE {name} gauge"
        yield f"{name} {found.nearest_deadline.timestamp():.3f}"


def _family(name: str, text: str, label: str, values: Mapping[str, int]) -> Iterator[str]:
    yield f"# HELP batchjobs_{name} {text}"
    yield f"# TYPE batchjobs_{name} gauge"
    for value, count in values.items():
        yield f'batchjobs_{name}{{{label}="{_escaped(value)}"}} {count}'


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
