"""What happens to a worker's shards, for the log and for Prometheus."""

from __future__ import annotations

import logging
from typing import Any

from batchjobs.queue.claims import Claim
from batchjobs.states import Outcome
from batchjobs.worker import figures

logger = logging.getLogger(__name__)


def claimed(claim: Claim) -> None:
    logger.info("Shard claimed, attempt %d", claim.attempt, extra=_ids(claim))


def finished(claim: Claim) -> None:
    logger.info("Shard finished: %d lines", claim.line_count, extra=_ids(claim))


def given_back(claim: Claim) -> None:
    logger.info("Shard given back", extra=_ids(claim))


def lost(claim: Claim) -> None:
    """Its lease ended, and it was taken away."""
    figures.LEASE_LOSSES.inc()
    logger.info("Shard lost to another worker or to the end of its job", extra=_ids(claim))


def answered(claim: Claim, outcome: Outcome) -> None:
    figures.LINES.labels(claim.model, outcome).inc()


def checkpointed(claim: Claim, lines: int) -> None:
    figures.CHECKPOINTS.inc()
    logger.debug("Checkpoint of %d lines", lines, extra=_ids(claim))


def checkpoint_failed(claim: Claim, error: Exception) -> None:
    figures.CHECKPOINT_FAILURES.inc()
    logger.error("Checkpoint failed: %s", error, extra=_ids(claim))


def _ids(claim: Claim) -> dict[str, Any]:
    return {"job_id": claim.job_id, "shard": claim.number, "model": claim.model}
