"""One model at work: shards in, requests through the engine, results to checkpoints.

The engine is never drained between shards: while one shard's last answers decode, the next
shards' requests, of whatever job, are already running.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Generator, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

from batchjobs.deployment import Deployment
from batchjobs.endpoints import ENDPOINTS
from batchjobs.errors import Interrupted, LeaseLostError
from batchjobs.queue import claims, jobs
from batchjobs.shard_lines import ShardLine, read_shard
from batchjobs.states import JobState
from batchjobs.worker import events
from batchjobs.worker.ahead import made_ahead
from batchjobs.worker.engines import LoadedModel
from batchjobs.worker.isolation import condemned, groups, is_dangerous, worker_crashed
from batchjobs.worker.line_work import LineWork, line_context
from batchjobs.worker.meter import Meter
from batchjobs.worker.open_shard import OpenShard
from batchjobs.worker.preparing import PreparedLine, prepared
from batchjobs.worker.progress import ModelReport, Progress
from batchjobs.worker.publisher import Publisher
from batchjobs.worker.stop import StopSignal
from batchjobs.worker.watchdog import Watchdog
from executor.request import Completion, Request

MAX_UNWRITTEN_BYTES = 64 << 20
"""Of results in memory, whose checkpoint is then due at once: vectors are long."""
LINES_AHEAD = 256
"""Lines prepared before the engine asks for them; a shard's bytes bound them as well."""


class ModelSession:
    """Answers every claimable shard of one model, of one job or of all.

    | what | when | where |
    |---|---|---|
    | claim | the engine wants requests and no open shard has lines left | `_requests` |
    | checkpoint | every checkpoint_seconds, at a shard's and the run's end, | `_checkpoint` |
    | | and when more than MAX_UNWRITTEN_BYTES are not stored | |
    | heartbeat | every third of a lease, between steps: a hung engine loses its shards | `_tick` |
    | cancel, expiry | every poll_seconds; running generations stop before the next step | `_poll` |
    """

    def __init__(
        self,
        deployment: Deployment,
        loaded: LoadedModel,
        *,
        model: str,
        worker: str,
        job_id: str | None,
        on_progress: Callable[[Progress], None],
        stop: StopSignal,
        is_anothers_turn: Callable[[], bool] = lambda: False,
    ) -> None:
        self._deployment = deployment
        self._settings = deployment.settings
        self._database = deployment.database
        self._engine = loaded.engine
        self._loaded = loaded
        self._model = model
        self._worker = worker
        self._job_id = job_id
        self._on_progress = on_progress
        self._stop = stop
        self._is_anothers_turn = is_anothers_turn
        self._open: dict[int, OpenShard] = {}
        self._lines: dict[str, LineWork] = {}
        self._is_paused = False
        self._watchdog = Watchdog(seconds=self._settings.watchdog_seconds)
        self._publisher = Publisher(deployment)
        self._meter = Meter(deployment, loaded, job_id)
        self._next_poll = now = time.monotonic()
        self._stays_until = now + self._settings.model_switch_seconds
        self._next_checkpoint = now + self._settings.checkpoint_seconds
        self._next_heartbeat = now + self._settings.lease_seconds / 3

    def run(self) -> ModelReport:
        """Until nothing of this model is claimable, or after model_switch_seconds another is
        more urgent, and all that was claimed is answered. `is_anothers_turn` says the latter.

        Raises:
            Interrupted: asked to stop; what is finished is checkpointed, shards are given back.
        """
        try:
            with self._publisher, self._watchdog:
                self._run_all()
        except Interrupted:
            self._give_back(list(self._open.values()))
            raise
        self._on_progress(self._meter.progress(()))
        return self._meter.report(self._model)

    def _run_all(self) -> None:
        self._drive(self._requests())
        while self._is_paused:
            self._is_paused = False
            for shard in list(self._open.values()):
                self._run_apart(shard)
            self._drive(self._requests())

    def _drive(self, requests: Generator[Request]) -> None:
        with closing(requests):
            try:
                for completion in self._engine.run(requests, on_step=self._tick):
                    self._take(completion)
            finally:
                self._checkpoint()

    def _requests(self) -> Generator[Request]:
        """Of every shard that can be claimed; pauses at a dangerous one, which is then the only
        open one or is given back until the others are answered."""
        while shard := self._claim():
            if is_dangerous(shard.claim):
                self._is_paused = True
                if len(self._open) > 1:
                    self._give_back([shard])
                return
            yield from self._lines_of(shard)
            self._finish_if_complete(shard)

    def _lines_of(
        self, shard: OpenShard, numbers: Container[int] | None = None
    ) -> Generator[Request]:
        """The requests of the shard's unanswered lines, or of those with these numbers."""
        ahead = made_ahead(prepared(self._works(shard, numbers)), LINES_AHEAD)
        with closing(ahead) as lines:
            for line in lines:
                self._tick()
                if shard.claim.shard_id not in self._open:
                    return
                yield from self._enter(shard, line)

    def _works(self, shard: OpenShard, numbers: Container[int] | None) -> Iterator[LineWork]:
        """Runs in a thread of its own, ahead of the engine: touches nothing of the session's."""
        for line in read_shard(self._deployment.store, shard.claim):
            wanted = numbers is None or line.number in numbers
            if wanted and not shard.has_answer(line.number):
                yield self._work(shard, line)

    def _run_apart(self, shard: OpenShard) -> None:
        """Answer a dangerous shard group by group, nothing else being in the engine.

        The group at hand is noted first: should the worker die, the next one knows where to look.
        """
        claim = shard.claim
        unanswered = sorted(
            (
                line
                for line in read_shard(self._deployment.store, claim)
                if not shard.has_answer(line.number)
            ),
            key=lambda line: line.number,
        )
        if crashed := condemned(claim, [line.number for line in unanswered]):
            [line] = [line for line in unanswered if line.number == crashed]
            shard.add(line, *worker_crashed(claim, line))
        for group in groups([line.number for line in unanswered if line.number != crashed], claim):
            if claim.shard_id not in self._open:
                return
            try:
                self._database.transact(
                    partial(claims.suspect, claim=claim, lines=(group[0], group[-1]))
                )
            except LeaseLostError:
                events.lost(claim)
                self._forget(shard)
                return
            self._drive(self._lines_of(shard, group))
        self._finish_if_complete(shard)

    def _claim(self) -> OpenShard | None:
        if time.monotonic() >= self._stays_until and self._is_anothers_turn():
            return None
        claim = self._database.transact(
            lambda session: claims.claim_next(
                session,
                self._deployment.clock,
                owner=self._worker,
                lease_seconds=self._settings.lease_seconds,
                models=[self._model],
                job_id=self._job_id,
            )
        )
        if claim is None:
            return None
        shard = OpenShard(
            claim,
            self._database,
            self._deployment.store,
            fingerprint=self._loaded.fingerprint,
        )
        self._open[claim.shard_id] = shard
        events.claimed(claim)
        return shard

    def _work(self, shard: OpenShard, line: ShardLine) -> LineWork:
        return LineWork(
            endpoint=ENDPOINTS[shard.claim.endpoint],
            line=line,
            context=line_context(shard.claim, line),
            model=self._loaded.context(line.model, ignore_unknown=self._settings.ignore_unknown),
        )

    def _enter(self, shard: OpenShard, prepared: PreparedLine) -> Iterator[Request]:
        work = prepared.work
        if prepared.error is not None:
            shard.add(work.line, *work.failure(prepared.error))
            return
        key = f"{shard.claim.shard_id}:{work.line.number}"
        self._lines[key] = work
        for number, request in enumerate(prepared.requests):
            if key not in self._lines:
                return  # the shard was given back while this line was half in the engine
            # The engine's lowest is first, a job's greatest.
            yield replace(request, id=f"{key}:{number}", priority=-shard.claim.priority)

    def _take(self, completion: Completion) -> None:
        key, _, number = completion.request_id.rpartition(":")
        work = self._lines[key]
        work.completions[int(number)] = completion
        self._meter.count(completion)
        if not work.is_complete:
            return
        del self._lines[key]
        shard = self._open[int(key.partition(":")[0])]
        shard.add(work.line, *work.answer(), list(work.completions.values()))
        self._finish_if_complete(shard)
        if sum(held.unwritten_bytes for held in self._open.values()) > MAX_UNWRITTEN_BYTES:
            self._checkpoint()

    def _finish_if_complete(self, shard: OpenShard) -> None:
        claim = shard.claim
        if claim.shard_id not in self._open or not shard.is_complete:
            return
        del self._open[claim.shard_id]
        try:
            shard.checkpoint()
            self._database.transact(lambda session: claims.finish(session, claim))
        except LeaseLostError:
            events.lost(claim)
            return
        events.finished(claim)
        self._publisher.settle(claim.job_id)

    def _tick(self) -> None:
        """Between steps: everything that must not wait for a completion."""
        self._watchdog.step()
        self._stop.check()
        now = time.monotonic()
        if now >= self._next_checkpoint:
            self._checkpoint()
            self._next_checkpoint = time.monotonic() + self._settings.checkpoint_seconds
        if now >= self._next_heartbeat:
            self._heartbeat()
            self._next_heartbeat = now + self._settings.lease_seconds / 3
        if now >= self._next_poll:
            self._poll()
            self._next_poll = time.monotonic() + self._settings.poll_seconds

    def _checkpoint(self) -> None:
        for shard in list(self._open.values()):
            try:
                shard.checkpoint()
            except LeaseLostError:
                events.lost(shard.claim)
                self._forget(shard)

    def _heartbeat(self) -> None:
        held = [shard.claim for shard in self._open.values()]
        lost = self._database.transact(
            lambda session: claims.heartbeat(
                session, self._deployment.clock, held, self._settings.lease_seconds
            )
        )
        for claim in lost:
            events.lost(claim)
            self._forget(self._open[claim.shard_id])

    def _poll(self) -> None:
        self._publisher.raise_failures()
        for job_id in self._ended_jobs():
            shards = [s for s in self._open.values() if s.claim.job_id == job_id]
            self._give_back(shards)
            self._publisher.settle(job_id)
        self._on_progress(self._meter.progress(self._open.values()))

    def _ended_jobs(self) -> list[str]:
        """Jobs of open shards that were cancelled or whose window has closed."""
        open_jobs = {shard.claim.job_id: shard.claim for shard in self._open.values()}
        with self._database.read() as session:
            now = self._deployment.clock.now(session)
            status = {job_id: jobs.get(session, job_id).status for job_id in open_jobs}
        if any(claim.expires_at <= now for claim in open_jobs.values()):
            expired = self._database.transact(
                lambda session: jobs.expire_due(session, self._deployment.clock)
            )
            status.update((job_id, JobState.FINALIZING) for job_id in expired if job_id in status)
        return [job_id for job_id, state in status.items() if state != JobState.IN_PROGRESS]

    def _give_back(self, shards: list[OpenShard]) -> None:
        """Checkpoint and release; an attempt that was stopped on purpose is not counted."""
        for shard in shards:
            self._forget(shard)
            try:
                shard.checkpoint()
            except LeaseLostError:
                events.lost(shard.claim)
                continue
            self._database.transact(partial(claims.release, claim=shard.claim))
            events.given_back(shard.claim)

    def _forget(self, shard: OpenShard) -> None:
        """Take the shard's lines out of the engine."""
        shard_id = shard.claim.shard_id
        del self._open[shard_id]
        for key in [key for key in self._lines if key.startswith(f"{shard_id}:")]:
            work = self._lines.pop(key)
            self._engine.abort({f"{key}:{number}" for number in range(work.expected)})
