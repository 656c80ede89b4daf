from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select

from batchjobs.deployment import Deployment
from batchjobs.models import Sample
from batchjobs.queue import samples, workers
from batchjobs.queue.samples import MINUTES, History
from batchjobs.queue.workers import Condition, Identity
from tests.support.jobs import START, clock_of, open_deployment

WORKER = Identity(id="worker-1", host="here", pid=1, models=None, job_id=None)


@pytest.fixture
def deployment(tmp_path: Path, database_url: str | None) -> Iterator[Deployment]:
    with open_deployment(tmp_path, database_url=database_url) as opened:
        yield opened


def add(deployment: Deployment, tokens: int, *, worker: str = "w", model: str = "m") -> None:
    with deployment.database.write() as session:
        now = deployment.clock.now(session)
        samples.add(session, now, worker_id=worker, model=model, tokens=tokens)


def history(deployment: Deployment) -> History:
    with deployment.database.read() as session:
        return samples.history(session, deployment.clock)


def rows(deployment: Deployment) -> int:
    with deployment.database.read() as session:
        return session.scalar(select(func.count()).select_from(Sample)) or 0


def test_tokens_of_a_minute_are_summed_over_reports_and_workers(deployment: Deployment) -> None:
    for worker, tokens in (("a", 10), ("a", 20), ("b", 5), ("b", 0), ("b", -3)):
        add(deployment, tokens, worker=worker)
    add(deployment, 7, model="other")
    found = history(deployment)
    assert {model: counts[-1] for model, counts in found.tokens.items()} == {"m": 35, "other": 7}
    assert {len(counts) for counts in found.tokens.values()} == {MINUTES}
    assert rows(deployment) == 3
    assert found.first_minute * 60 == START.timestamp() // 60 * 60 - 59 * 60


def test_only_an_hour_is_kept_and_told(deployment: Deployment) -> None:
    for _ in range(MINUTES + 30):
        add(deployment, 60)
        clock_of(deployment).advance(timedelta(minutes=1))
    assert rows(deployment) == MINUTES
    assert history(deployment).tokens["m"] == (60,) * (MINUTES - 1) + (0,)
    clock_of(deployment).advance(timedelta(minutes=MINUTES))
    assert history(deployment).tokens == {}


def test_minute_that_runs_is_told_once_it_is_old_enough(deployment: Deployment) -> None:
    add(deployment, 60)  # five seconds into its minute
    assert history(deployment).rates("m")[-1] is None
    clock_of(deployment).advance(timedelta(seconds=15))
    assert history(deployment).rates("m")[-1] == pytest.approx(3.0)
    clock_of(deployment).advance(timedelta(seconds=60))
    assert history(deployment).rates("m")[-2:] == [pytest.approx(1.0), 0.0]


def test_name_of_a_model_that_is_very_long_is_cut(deployment: Deployment) -> None:
    add(deployment, 1, model="x" * 1000)
    add(deployment, 1, model="x" * 1000)
    assert history(deployment).tokens["x" * 255][-1] == 2


def test_worker_reports_its_tokens_with_its_model(deployment: Deployment) -> None:
    for condition, tokens in ((Condition(), 9), (Condition(loaded_model="m"), 4)):
        with deployment.database.write() as session:
            workers.report(session, deployment.clock, WORKER, condition, tokens=tokens)
    assert {model: counts[-1] for model, counts in history(deployment).tokens.items()} == {"m": 4}
