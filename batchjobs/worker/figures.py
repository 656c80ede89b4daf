"""A worker's figures for Prometheus. Those of the engine have vLLM's names behind our prefix."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from batchjobs.errors import UsageError
from batchjobs.models import Model
from batchjobs.obs.metrics import LEASE_RESCUES
from batchjobs.worker.engines import EngineSource, LoadedModel
from executor.metrics import EngineMetrics

LINES = Counter(
    "batchjobs_lines_answered",
    "Lines by model and by the file that their answer goes to.",
    ["model", "outcome"],
    registry=None,
)
CHECKPOINTS = Counter("batchjobs_checkpoints", "Parts that were stored and count.", registry=None)
CHECKPOINT_FAILURES = Counter(
    "batchjobs_checkpoint_failures", "Parts that could not be stored.", registry=None
)
LEASE_LOSSES = Counter(
    "batchjobs_lease_losses", "Shards that were taken from this worker.", registry=None
)

_LABEL = "model_name"
_GAUGES = {
    "num_requests_running": "Sequences in the last step.",
    "num_requests_waiting": "Sequences that wait to be in one.",
    "kv_cache_usage_perc": "Share of the KV cache in use, 0 to 1.",
}
_COUNTERS = {
    "num_preemptions_total": "Sequences that had to give up their KV cache for a while.",
    "prompt_tokens_total": "Prompt tokens of the requests taken in.",
    "generation_tokens_total": "Generated tokens.",
    "forced_tokens_total": "Generated tokens that a grammar left no choice about.",
    "computed_tokens_total": "Positions computed; recomputed ones count again.",
    "num_recomputed_tokens_total": "Positions computed again after their cache was given up.",
    "prefix_cache_queries_total": "Prompt tokens of the sequences that began to run.",
    "prefix_cache_hits_total": "Those of them that others had computed.",
    "spec_decode_num_draft_tokens_total": "Guessed tokens that were checked.",
    "spec_decode_num_accepted_tokens_total": "Those of them that were right.",
    "num_out_of_memory_total": "Steps that did not fit the memory and were tried in parts.",
    "num_deduplicated_requests_total": "Requests answered with an equal one's answer.",
    "steps_total": "Steps of the engine.",
}


class WatchedEngines(Collector):
    """An `EngineSource` that tells how the engine does that it has loaded last.

    It is read at each scrape, from whatever thread, and keeps no engine from being let go of.
    """

    def __init__(self, source: EngineSource) -> None:
        self._source = source
        self._watched: tuple[str, EngineMetrics] | None = None

    def load(self, model: Model) -> LoadedModel:
        loaded = self._source.load(model)
        self._watched = (model.name, loaded.engine.metrics)
        return loaded

    def collect(self) -> Iterator[Metric]:
        if self._watched is None:
            return
        model, metrics = self._watched
        for name, text in _GAUGES.items():
            gauge = GaugeMetricFamily(f"batchjobs_{name}", text, labels=[_LABEL])
            gauge.add_metric([model], getattr(metrics, name))
            yield gauge
        for name, text in _COUNTERS.items():
            counter = CounterMetricFamily(f"batchjobs_{name}", text, labels=[_LABEL])
            counter.add_metric([model], getattr(metrics, name))
            yield counter


def serve_figures(engines: WatchedEngines, *, host: str, port: int) -> int:
    """Answer scrapes in a thread until the process ends. The port, which 0 lets be any free one.

    Raises UsageError if the address cannot be listened on.
    """
    registry = CollectorRegistry()
    for each in (engines, LINES, CHECKPOINTS, CHECKPOINT_FAILURES, LEASE_LOSSES, LEASE_RESCUES):
        registry.register(each)
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as failed:
        raise UsageError(
            f"Metrics cannot be served on {host}:{port} ({failed.strerror}); choose another port"
            " with BATCHJOBS_METRICS_PORT or --metrics-port."
        ) from failed
    return server.server_port
