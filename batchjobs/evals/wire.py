"""Runs as programs read them: the shape of `--json`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from batchjobs.evals.runs import answered_at
from batchjobs.evals.tables import EvalRun


def run_object(run: EvalRun) -> dict[str, Any]:
    """`scores` is null until the run is scored, `verdict` until it is finished, and for a run that
    is not judged."""
    return {
        "id": run.id,
        "object": "eval.run",
        "suite": run.suite,
        "model": run.model,
        "state": str(run.state),
        "reason": run.reason,
        "purpose": str(run.purpose),
        "night": run.night,
        "confirms": run.confirms,
        "rescores": run.rescores,
        "metric": run.metric,
        "items": run.items,
        "samples": run.samples,
        "scores": run.scores,
        "verdict": run.verdict,
        "usage": {"input_tokens": run.prompt_tokens, "output_tokens": run.completion_tokens},
        "jobs": run.jobs,
        "conditions": run.conditions,
        "dataset_sha256": run.dataset_sha256,
        "created_at": _seconds(run.created_at),
        "answered_at": _seconds(answered_at(run)),
        "finished_at": _seconds(run.finished_at),
    }


def _seconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())
