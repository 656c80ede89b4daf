"""Figures for Prometheus that more than one kind of process has, and how they are told."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4

LEASE_RESCUES = Counter(
    "batchjobs_lease_rescues",
    "Shards that this process has taken back from workers that were silent or dead.",
    registry=None,
)


def exposition(registry: CollectorRegistry) -> bytes:
    """The text format that `MEDIA_TYPE` names."""
    return generate_latest(registry)
