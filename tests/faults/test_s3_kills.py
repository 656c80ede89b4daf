"""Jobs whose object store is killed under them. Only the logits are made up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from batchjobs.deployment import Deployment
from batchjobs.errors import StoreError
from batchjobs.queue import claims
from batchjobs.states import JobState
from batchjobs.worker.progress import Progress
from batchjobs.worker.runner import run_jobs
from batchjobs.worker.stop import StopSignal
from tests.support.engines import FakeEngines, add_models
from tests.support.jobs import (
    MODEL,
    load_job,
    open_deployment,
    read_records,
    request_line,
    start_job,
)
from tests.support.servers.s3 import SeaweedFS

LINES = 60


@pytest.fixture
def deployment(mortal_s3: SeaweedFS, tmp_path: Path) -> Iterator[Deployment]:
    server = mortal_s3.server
    with open_deployment(
        tmp_path,
        store_url=server.url,
        s3_endpoint_url=server.endpoint_url,
        poll_seconds=1e-9,
        checkpoint_seconds=1e-9,
    ) as opened:
        add_models(opened, MODEL)
        yield opened


def start(deployment: Deployment) -> str:
    requests = [request_line(f"line-{number}") for number in range(LINES)]
    for request in requests:
        request["body"] |= {"max_tokens": 4, "ignore_eos": True}
    return start_job(deployment, requests, shard_max_lines=8)


def run(deployment: Deployment, job_id: str, on_progress: Callable[[Progress], None]) -> None:
    run_jobs(
        deployment,
        job_id=job_id,
        engines=FakeEngines(),
        on_progress=on_progress,
        stop=StopSignal(grace_seconds=60, forced_exit=9),
    )


def once_half_done(act: Callable[[], None]) -> Callable[[Progress], None]:
    acted = False

    def watch(progress: Progress) -> None:
        nonlocal acted
        if progress.done >= LINES // 2 and not acted:
            acted = True
            act()

    return watch


def assert_complete(deployment: Deployment, job_id: str) -> None:
    job = load_job(deployment, job_id)
    assert job.status == JobState.COMPLETED
    records = read_records(deployment, job.output_file_id)
    assert [record["custom_id"] for record in records] == [f"line-{n}" for n in range(LINES)]


def test_job_goes_on_when_the_store_was_killed_and_is_back(
    deployment: Deployment, mortal_s3: SeaweedFS
) -> None:
    job_id = start(deployment)
    restarts: list[JobState] = []

    def restart() -> None:
        mortal_s3.kill()
        mortal_s3.start()
        restarts.append(load_job(deployment, job_id).status)

    run(deployment, job_id, once_half_done(restart))
    assert restarts == [JobState.IN_PROGRESS]
    assert_complete(deployment, job_id)


def test_job_is_resumed_when_the_store_was_away_for_long(
    deployment: Deployment, mortal_s3: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = start(deployment)
    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", lambda _: None)  # the pauses between attempts
        with pytest.raises(StoreError, match="The object store cannot"):
            run(deployment, job_id, once_half_done(mortal_s3.kill))
    assert load_job(deployment, job_id).status == JobState.IN_PROGRESS
    mortal_s3.start()
    with deployment.database.write() as session:
        for owner in claims.owners(session):
            claims.release_owner(session, owner)
    run(deployment, job_id, lambda progress: None)
    assert_complete(deployment, job_id)
