from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from batchjobs.clock import DatabaseClock
from batchjobs.deployment import Deployment
from batchjobs.errors import DatabaseError, Interrupted
from batchjobs.models import Model, Worker
from batchjobs.queue import claims, samples, workers
from batchjobs.worker.progress import Progress
from batchjobs.worker.registration import Registration
from batchjobs.worker.runner import run_jobs, work_on
from batchjobs.worker.stop import StopSignal
from tests.support.engines import FakeEngines, add_models
from tests.support.jobs import MODEL, open_deployment, request_line, start_job

WAIT_SECONDS = 20
SAMPLE_SECONDS = 0.01


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    monkeypatch.setattr("batchjobs.worker.registration.SAMPLE_SECONDS", SAMPLE_SECONDS)
    with open_deployment(tmp_path, poll_seconds=1e-9) as opened:
        add_models(opened, MODEL)
        yield opened


def live(deployment: Deployment) -> list[Worker]:
    with deployment.database.read() as session:
        found = workers.live(session, deployment.clock, lease_seconds=60)
        return list(found)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(SAMPLE_SECONDS)


def tiny(deployment: Deployment) -> Model:
    with deployment.database.read() as session:
        return session.get_one(Model, MODEL)


def test_worker_is_known_from_its_start_to_its_end(deployment: Deployment) -> None:
    with Registration(deployment, models={"b", "a"}, job_id="batch_1") as me:
        [known] = live(deployment)
        assert (known.id, known.models, known.job_id) == (me.id, ["a", "b"], "batch_1")
        assert known.loaded_model is None
    assert live(deployment) == []


def test_model_and_measured_speed_are_reported(deployment: Deployment) -> None:
    with Registration(deployment) as me:
        metrics = me.load(FakeEngines(), tiny(deployment)).engine.metrics
        wait_until(lambda: live(deployment)[0].loaded_model == MODEL)
        assert live(deployment)[0].tokens_per_second is None
        metrics.observe_step(running=2, waiting=1, slots=2, kv_usage=0, tokens=100)
        wait_until(lambda: live(deployment)[0].tokens_per_second is not None)
        [known] = live(deployment)
        assert (known.running, known.waiting) == (2, 1)
        assert known.tokens_per_second is not None
        assert known.tokens_per_second > 0


def test_tokens_are_counted_for_the_model_that_computed_them(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchjobs.worker.registration.REPORT_SECONDS", SAMPLE_SECONDS)

    def counted() -> dict[str, int]:
        with deployment.database.read() as session:
            tokens = samples.history(session, deployment.clock).tokens
        return {model: sum(minutes) for model, minutes in tokens.items()}

    with Registration(deployment) as me:
        metrics = me.load(FakeEngines(), tiny(deployment)).engine.metrics
        for _ in range(2):
            metrics.observe_step(running=2, waiting=1, slots=2, kv_usage=0.25, tokens=100)
            done = metrics.covered_tokens_total
            wait_until(lambda done=done: counted() == {MODEL: done})  # type: ignore[misc]
        wait_until(lambda: live(deployment)[0].kv_cache_usage == 0.25)
        metrics = me.load(FakeEngines(), tiny(deployment)).engine.metrics
        metrics.observe_step(running=1, waiting=0, slots=1, kv_usage=0.5, tokens=50)
        wait_until(lambda: counted() == {MODEL: 250})


def test_worker_reports_while_nothing_changes(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchjobs.worker.registration.REPORT_SECONDS", 0.05)
    ticking = replace(deployment, clock=DatabaseClock())
    with Registration(ticking):
        first = live(ticking)[0].seen_at
        wait_until(lambda: live(ticking)[0].seen_at > first)


def test_database_that_fails_in_between_ends_no_worker(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("batchjobs.worker.registration.REPORT_SECONDS", 0)
    with Registration(deployment) as me:
        report = workers.report

        def fail(*_: object, **__: object) -> None:
            raise DatabaseError("The database is away.")

        monkeypatch.setattr(workers, "report", fail)
        wait_until(lambda: "The database is away." in caplog.text)
        monkeypatch.setattr(workers, "report", report)
        me.load(FakeEngines(), tiny(deployment))
        wait_until(lambda: live(deployment)[0].loaded_model == MODEL)


def test_run_of_a_job_is_known_as_a_worker_for_it_that_owns_its_shards(
    deployment: Deployment,
) -> None:
    job_id = start_job(deployment, [request_line("a")])
    seen: list[tuple[set[str], str | None]] = []

    def watch(progress: Progress) -> None:
        with deployment.database.read() as session:
            owners = claims.owners(session)
        [known] = live(deployment)
        if owners:
            seen.append((owners - {known.id}, known.job_id))

    stop = StopSignal(grace_seconds=60, forced_exit=9)
    run_jobs(deployment, job_id=job_id, engines=FakeEngines(), stop=stop, on_progress=watch)
    assert set(map(str, seen)) == {str((set(), job_id))}
    assert live(deployment) == []


def test_waiting_worker_is_known_until_it_is_stopped(deployment: Deployment) -> None:
    stop = StopSignal(grace_seconds=60, forced_exit=9)
    known: list[Worker] = []

    def note(_: object) -> None:
        known.extend(live(deployment))
        stop.set()

    start_job(deployment, [request_line("a")])
    with pytest.raises(Interrupted):
        work_on(deployment, engines=FakeEngines(), stop=stop, models={MODEL}, on_report=note)
    assert [worker.models for worker in known] == [[MODEL]]
    assert live(deployment) == []
