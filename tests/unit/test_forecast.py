"""What is expected of jobs, out of a real database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from batchjobs.deployment import Deployment
from batchjobs.finalize import finalize
from batchjobs.forecast import Forecast, look_ahead
from batchjobs.outlook import Outlook
from batchjobs.queue import jobs, workers
from batchjobs.queue.workers import Condition, Identity
from tests.support.jobs import (
    MODEL,
    START,
    answer,
    clock_of,
    complete,
    complete_all,
    create_job,
    must_claim,
    open_deployment,
    request_line,
    start_job,
)

PROMPT, COMPLETION = 10, 5  # of every line that `answer` answers, which it takes for 100 bytes


@pytest.fixture
def deployment(tmp_path: Path, database_url: str | None) -> Iterator[Deployment]:
    with open_deployment(tmp_path, database_url=database_url) as opened:
        yield opened


def work(
    deployment: Deployment,
    *,
    loaded: str | None = MODEL,
    rate: float | None = 10.0,
    job_id: str | None = None,
    models: tuple[str, ...] | None = None,
) -> None:
    """A live worker."""
    who = Identity(id=f"w-{loaded}-{job_id}", host="h", pid=1, models=models, job_id=job_id)
    condition = Condition(loaded_model=loaded, tokens_per_second=rate)
    with deployment.database.write() as session:
        workers.report(session, deployment.clock, who, condition)


def ahead(deployment: Deployment) -> dict[str, Outlook]:
    with deployment.database.read() as session:
        return look_ahead(session, deployment)


def eta_seconds(deployment: Deployment, job_id: str) -> float:
    eta = ahead(deployment)[job_id].eta
    assert eta is not None
    return (eta - clock_of(deployment).now(None)).total_seconds()  # type: ignore[arg-type]


def new_job(deployment: Deployment, count: int = 10, model: str = MODEL, **options: str) -> str:
    lines = [request_line(f"{number:03}", model=model) for number in range(count)]
    return start_job(deployment, lines, shard_max_lines=5, **options)


def size_of(deployment: Deployment, job_id: str) -> int:
    with deployment.database.read() as session:
        return jobs.get(session, job_id).total_bytes


def test_eta_is_of_the_lines_without_an_answer(deployment: Deployment) -> None:
    job_id = new_job(deployment)
    assert ahead(deployment) == {
        job_id: Outlook(
            notice=f"No live worker serves the model '{MODEL}';"
            f" start one with: batchjobs worker --model {MODEL}"
        )
    }
    work(deployment)
    assert ahead(deployment) == {job_id: Outlook()}  # nothing is known of the model yet
    complete(deployment, must_claim(deployment))
    prompt = (size_of(deployment, job_id) - 500) * PROMPT / 100
    assert eta_seconds(deployment, job_id) == pytest.approx((prompt + 5 * COMPLETION) / 10)


def test_new_job_is_measured_by_what_the_models_requests_took_before(
    deployment: Deployment,
) -> None:
    earlier = new_job(deployment)
    complete_all(deployment, earlier)
    finalize(deployment, earlier)
    later = new_job(deployment, count=20)
    work(deployment)
    per_byte = 10 * PROMPT / size_of(deployment, earlier)
    tokens = size_of(deployment, later) * per_byte + 20 * COMPLETION
    assert eta_seconds(deployment, later) == pytest.approx(tokens / 10)


def test_jobs_with_earlier_deadlines_are_waited_for(deployment: Deployment) -> None:
    late = new_job(deployment, completion_window="48h")
    soon = new_job(deployment)
    work(deployment)
    held = must_claim(deployment, job_id=soon)
    complete(deployment, held)
    alone = eta_seconds(deployment, soon)
    assert eta_seconds(deployment, late) > 2 * alone


def test_job_of_several_models_has_what_each_took(deployment: Deployment) -> None:
    lines = [request_line(str(number), model=("x", "y")[number % 2]) for number in range(8)]
    job_id = start_job(deployment, lines, shard_max_lines=2)
    work(deployment, loaded="x", rate=10)
    work(deployment, loaded="y", rate=5)
    answer(deployment, must_claim(deployment, models=["x"]))
    answer(deployment, must_claim(deployment, models=["y"]))
    half = size_of(deployment, job_id) / 2
    tokens = (half - 200) * PROMPT / 100 + 2 * COMPLETION
    assert eta_seconds(deployment, job_id) == pytest.approx(tokens / 5)


def test_ended_job_is_not_looked_at(deployment: Deployment) -> None:
    ended, validating = new_job(deployment), create_job(deployment)
    complete_all(deployment, ended)
    finalize(deployment, ended)
    assert set(ahead(deployment)) == {validating}


def test_job_is_flagged_before_it_misses_its_deadline(deployment: Deployment) -> None:
    job_id = new_job(deployment)
    complete(deployment, must_claim(deployment))
    work(deployment, rate=0.002)
    assert eta_seconds(deployment, job_id) > 3600
    assert not ahead(deployment)[job_id].at_risk
    clock_of(deployment).advance(timedelta(hours=20))
    work(deployment, rate=0.002)  # as before, and still alive
    outlook = ahead(deployment)[job_id]
    assert outlook.at_risk
    assert outlook.eta is not None
    assert outlook.eta > START + timedelta(hours=24)


def test_notice_comes_and_goes_with_workers(deployment: Deployment) -> None:
    job_id = new_job(deployment)
    work(deployment, loaded=None, models=("other",))
    assert ahead(deployment)[job_id].notice is not None
    work(deployment, loaded=None, job_id=job_id)
    assert ahead(deployment)[job_id].notice is None
    clock_of(deployment).advance(timedelta(seconds=deployment.settings.lease_seconds))
    assert ahead(deployment)[job_id].notice is not None


def test_forecast_asks_again_only_when_it_is_old(tmp_path: Path) -> None:
    with open_deployment(tmp_path, poll_seconds=3600) as patient:
        forecast = Forecast(patient)
        assert forecast.outlooks() == {}
        new_job(patient)
        assert forecast.outlooks() == {}
        assert len(Forecast(patient).outlooks()) == 1
