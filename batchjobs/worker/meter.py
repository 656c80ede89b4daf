"""Measures a model session: what the jobs at hand have, what the engine does, what is left."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace

from batchjobs.deployment import Deployment
from batchjobs.outlook import estimate_remaining_tokens
from batchjobs.queue import jobs, tallies
from batchjobs.queue.tallies import Tally
from batchjobs.worker.engines import LoadedModel
from batchjobs.worker.open_shard import OpenShard
from batchjobs.worker.peaks import machine_peak
from batchjobs.worker.progress import (
    ModelReport,
    Progress,
    estimate_seconds,
)
from batchjobs.worker.run_figures import advice, engine_figures
from executor.metrics import EngineMetrics
from executor.recorder import Recorder
from executor.request import Completion

PEAK_FROM_SECONDS = 20.0
"""Shorter runs are not compared with the machine's limits: finding those takes a second or two."""


class Meter:
    """Started when the model is ready, so that rates do not count its loading."""

    def __init__(self, deployment: Deployment, loaded: LoadedModel, job_id: str | None) -> None:
        self._deployment = deployment
        self._loaded = loaded
        self._job_id = job_id
        self._started = time.monotonic()
        self._completed_tokens = self._completed = 0
        # An engine outlives its sessions, and its counters only grow.
        loaded.engine.metrics.kv_cache_usage_peak = 0.0
        self._earlier = replace(loaded.engine.metrics)
        self._recorder = Recorder(loaded.cost)
        loaded.engine.watcher = self._recorder
        if loaded.profile is not None:
            loaded.profile.reset()

    def count(self, completion: Completion) -> None:
        self._completed += 1
        self._completed_tokens += completion.prompt_tokens + completion.completion_tokens

    def progress(self, shards: Collection[OpenShard]) -> Progress:
        """Of the jobs that `shards` are of, and of the session's own job if it has one."""
        metrics = self._metrics()
        elapsed = self._elapsed()
        done, lines, size = self._standing(shards)
        remaining = estimate_remaining_tokens(done, total_lines=lines, total_bytes=size)
        return Progress(
            done=done.completed + done.failed,
            failed=done.failed,
            total=lines,
            prompt_tokens=metrics.prompt_tokens_total,
            completion_tokens=metrics.generation_tokens_total,
            tokens_per_second=self._delivered(metrics) / elapsed if elapsed else 0.0,
            eta_seconds=estimate_seconds(remaining, metrics, self._completed_tokens, elapsed),
            running=metrics.num_requests_running,
            waiting=metrics.num_requests_waiting,
        )

    def report(self, model: str) -> ModelReport:
        metrics, engine, wall = self._metrics(), self._loaded.engine, self._elapsed()
        profile = self._loaded.profile
        spent = None if profile is None else profile.report()
        figures = engine_figures(
            self._recorder,
            metrics,
            engine.limits,
            requests=self._completed,
            wall_seconds=wall,
            peak=machine_peak(self._loaded.device) if wall >= PEAK_FROM_SECONDS else None,
        )
        return ModelReport(
            model=self._loaded.called(model),
            wall_seconds=wall,
            prompt_tokens=metrics.prompt_tokens_total,
            completion_tokens=metrics.generation_tokens_total,
            steps=metrics.steps_total,
            mean_running=metrics.mean_running,
            kv_cache_usage_peak=metrics.kv_cache_usage_peak,
            preemptions=metrics.num_preemptions_total,
            decisions=self._loaded.decisions,
            figures=figures,
            advice=advice(figures, self._recorder.symptoms, engine.limits),
            profile=spent,
        )

    def _metrics(self) -> EngineMetrics:
        return self._loaded.engine.metrics.since(self._earlier)

    def _delivered(self, metrics: EngineMetrics) -> int:
        """Tokens generated, or those of texts that were embedded."""
        if self._loaded.embedding is not None:
            return metrics.covered_tokens_total
        return metrics.generation_tokens_total

    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    def _standing(self, shards: Collection[OpenShard]) -> tuple[Tally, int, int]:
        """What is answered, how many lines there are, and how many bytes they have."""
        at_hand = {shard.claim.job_id for shard in shards}
        if self._job_id is not None:
            at_hand.add(self._job_id)
        with self._deployment.database.read() as session:
            rows = [jobs.get(session, job_id) for job_id in at_hand]
            done = sum((tallies.tally(session, job) for job in rows), Tally())
        done = sum((shard.pending for shard in shards), done)
        return done, sum(job.total_lines for job in rows), sum(job.total_bytes for job in rows)
