from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from batchjobs.deployment import Deployment
from batchjobs.queue import workers
from batchjobs.queue.workers import Condition, Identity
from batchjobs.worker.tending import take_stock
from tests.support.jobs import LEASE_SECONDS, START, clock_of, open_deployment

LEASE = timedelta(seconds=LEASE_SECONDS)


@pytest.fixture
def deployment(tmp_path: Path, database_url: str | None) -> Iterator[Deployment]:
    with open_deployment(tmp_path, database_url=database_url) as opened:
        yield opened


def identity(name: str, *models: str) -> Identity:
    return Identity(id=name, host="h\0st", pid=7, models=models or None, job_id=None)


def report(deployment: Deployment, who: Identity, condition: Condition | None = None) -> None:
    with deployment.database.write() as session:
        workers.report(session, deployment.clock, who, condition or Condition())


def live(deployment: Deployment) -> list[str]:
    with deployment.database.read() as session:
        found = workers.live(session, deployment.clock, lease_seconds=LEASE_SECONDS)
        return [worker.id for worker in found]


def test_what_a_worker_reports_is_kept_and_its_start_stays(deployment: Deployment) -> None:
    who = identity("w", "a", "b")
    report(deployment, who)
    clock_of(deployment).advance(LEASE / 2)
    condition = Condition(loaded_model="a", tokens_per_second=1.5, running=3, waiting=4)
    report(deployment, who, condition)
    with deployment.database.read() as session:
        [found] = workers.live(session, deployment.clock, lease_seconds=LEASE_SECONDS)
    assert (found.host, found.pid, found.models) == ("h\N{REPLACEMENT CHARACTER}st", 7, ["a", "b"])
    assert (found.started_at, found.seen_at) == (START, START + LEASE / 2)
    assert (found.loaded_model, found.tokens_per_second) == ("a", 1.5)
    assert (found.running, found.waiting) == (3, 4)


def test_worker_for_any_model_names_none(deployment: Deployment) -> None:
    report(deployment, identity("w"))
    with deployment.database.read() as session:
        [found] = workers.live(session, deployment.clock, lease_seconds=LEASE_SECONDS)
        raw = session.connection().exec_driver_sql("SELECT models FROM workers").scalar_one()
    assert (found.models, raw) == (None, None)


def test_silent_worker_is_not_live_and_is_removed_with_the_stock(deployment: Deployment) -> None:
    report(deployment, identity("silent"))
    clock_of(deployment).advance(LEASE / 2)
    report(deployment, identity("heard"))
    clock_of(deployment).advance(LEASE / 2)
    assert live(deployment) == ["heard"]
    take_stock(deployment)
    with deployment.database.read() as session:
        raw = session.connection().exec_driver_sql("SELECT id FROM workers").scalars().all()
    assert raw == ["heard"]


def test_worker_that_was_taken_for_dead_is_back_when_it_reports(deployment: Deployment) -> None:
    who = identity("w", "a")
    report(deployment, who)
    clock_of(deployment).advance(2 * LEASE)
    take_stock(deployment)
    assert live(deployment) == []
    report(deployment, who)
    assert live(deployment) == ["w"]


def test_worker_that_leaves_is_gone(deployment: Deployment) -> None:
    report(deployment, identity("a"))
    report(deployment, identity("b"))
    with deployment.database.write() as session:
        workers.leave(session, "a")
    assert live(deployment) == ["b"]
