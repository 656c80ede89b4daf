"""`/metrics`: the queue and the requests, in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from batchjobs.deployment import Deployment
from batchjobs.forecast import Forecast
from batchjobs.obs.metrics import LEASE_RESCUES, MEDIA_TYPE, exposition
from batchjobs.queue import census, workers

router = APIRouter()


@router.get("/metrics")
def metrics(request: Request) -> Response:
    return Response(exposition(request.app.state.registry), media_type=MEDIA_TYPE)


def new_registry(deployment: Deployment, forecast: Forecast) -> CollectorRegistry:
    """What a server tells; the queue is read at each scrape."""
    registry = CollectorRegistry()
    registry.register(LEASE_RESCUES)
    registry.register(_QueueCollector(deployment, forecast))
    return registry


class _QueueCollector(Collector):
    def __init__(self, deployment: Deployment, forecast: Forecast) -> None:
        self._deployment = deployment
        self._forecast = forecast

    def collect(self) -> Iterator[Metric]:
        """Raises DatabaseError."""
        lease_seconds = self._deployment.settings.lease_seconds
        outlooks = self._forecast.outlooks().values()
        with self._deployment.database.read() as session:
            found = census.take(session)
            live = workers.live(session, self._deployment.clock, lease_seconds=lease_seconds)
        yield _family("jobs", "Jobs by status.", "status", found.jobs)
        yield _family("queued_lines", "Lines that wait.", "model", found.queued_lines)
        yield _family("running_lines", "Lines that workers hold.", "model", found.running_lines)
        yield _family(
            "live_workers",
            "Workers by the model that they have loaded, which is empty for those without.",
            "model",
            Counter(worker.loaded_model or "" for worker in live),
        )
        yield GaugeMetricFamily(
            "batchjobs_jobs_at_risk",
            "Jobs that are not expected to end before they expire.",
            value=sum(outlook.at_risk for outlook in outlooks),
        )
        yield GaugeMetricFamily(
            "batchjobs_jobs_unserved",
            "Jobs with lines of a model that no live worker serves.",
            value=sum(outlook.notice is not None for outlook in outlooks),
        )
        if found.nearest_deadline is not None:
            yield GaugeMetricFamily(
                "batchjobs_nearest_deadline_timestamp_seconds",
                "When the first unfinished job expires.",
                value=found.nearest_deadline.timestamp(),
            )


def _family(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(f"batchjobs_{name}", text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family
