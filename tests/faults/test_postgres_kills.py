"""kill -9 of the database server, and of workers that share one."""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from batchjobs.db import RETRY_SECONDS
from batchjobs.deployment import Deployment
from batchjobs.errors import DatabaseError
from batchjobs.models import Shard
from batchjobs.queue import claims
from batchjobs.queue.claims import Claim
from batchjobs.settings import Settings
from batchjobs.states import JobState, ShardState
from batchjobs.worker.progress import Progress
from batchjobs.worker.runner import run_jobs
from batchjobs.worker.stop import StopSignal
from tests.support.engines import FakeEngines, add_models
from tests.support.jobs import (
    LEASE_SECONDS,
    MODEL,
    load_job,
    must_claim,
    read_records,
    request_line,
    start_job,
)
from tests.support.processes import python
from tests.support.servers.postgres import PostgresServer, postgres_server

LINES = 400
KILLS = 3


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        yield started


def chat(number: int) -> dict[str, Any]:
    line = request_line(f"line-{number}")
    line["body"] |= {"max_tokens": 4 + number * 7 % 40, "ignore_eos": True, "temperature": 1}
    return line


def claim_in(session: Session, deployment: Deployment) -> Claim | None:
    return claims.claim_next(
        session, deployment.clock, owner="worker-1", lease_seconds=LEASE_SECONDS
    )


def test_server_killed_in_the_middle_of_a_claim_has_not_claimed(
    tmp_path: Path, server: PostgresServer
) -> None:
    with Deployment.open(Settings.load(home=tmp_path, database_url=server.url)) as deployment:
        start_job(deployment, [request_line(name) for name in "abcd"])
        committed = must_claim(deployment)

        def claim_and_kill() -> None:
            with deployment.database.write() as session:
                assert claim_in(session, deployment) is not None
                server.kill()

        with pytest.raises(DatabaseError):
            claim_and_kill()
        server.start()
        again = must_claim(deployment)
        assert (again.number, again.fence, again.attempt) == (1, 1, 1)
        with deployment.database.read() as session:
            shard = session.get_one(Shard, committed.shard_id)
        assert (shard.state, shard.fence) == (ShardState.RUNNING, committed.fence)


def test_ping_tells_at_once_that_the_server_is_away(tmp_path: Path, server: PostgresServer) -> None:
    with Deployment.open(Settings.load(home=tmp_path, database_url=server.url)) as deployment:
        deployment.database.ping()
        server.kill()
        started = time.monotonic()
        with pytest.raises(DatabaseError):
            deployment.database.ping()
        assert time.monotonic() - started < RETRY_SECONDS / 2
        server.start()
        deployment.database.ping()


def test_worker_waits_for_a_server_that_is_killed_and_comes_back(
    tmp_path: Path, server: PostgresServer
) -> None:
    with Deployment.open(Settings.load(home=tmp_path, database_url=server.url)) as deployment:
        start_job(deployment, [request_line(name) for name in "ab"])
        tries = []

        def claim_through_a_restart(session: Session) -> Claim | None:
            claimed = claim_in(session, deployment)
            tries.append(claimed)
            if len(tries) == 1:
                server.kill()
                server.start()
                session.execute(select(1))
            return claimed

        claimed = deployment.database.transact(claim_through_a_restart)
        assert claimed is not None
        assert len(tries) == 2
        assert (claimed.number, claimed.fence, claimed.attempt) == (0, 1, 1)


def test_run_goes_on_when_a_killed_server_comes_back(
    tmp_path: Path, server: PostgresServer
) -> None:
    settings = Settings.load(
        home=tmp_path, database_url=server.url, poll_seconds=1e-9, checkpoint_seconds=1e-9
    )
    is_at_work, is_killed = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def wait_for_the_kill(progress: Progress) -> None:
        if progress.done >= 5:
            is_at_work.set()
            is_killed.wait(timeout=60)

    with Deployment.open(settings) as deployment:
        add_models(deployment, MODEL)
        job_id = start_job(deployment, [chat(number) for number in range(20)])

        def run() -> None:
            stop = StopSignal(grace_seconds=60, forced_exit=9)
            try:
                run_jobs(
                    deployment, engines=FakeEngines(), stop=stop, on_progress=wait_for_the_kill
                )
            except BaseException as failed:
                failures.append(failed)

        running = threading.Thread(target=run)
        running.start()
        assert is_at_work.wait(timeout=60)
        server.kill()
        is_killed.set()
        server.start()
        running.join()
        assert failures == []
        job = load_job(deployment, job_id)
        records = read_records(deployment, job.output_file_id)
    assert [r["custom_id"] for r in records] == [f"line-{number}" for number in range(20)]


@contextmanager
def worker(job_id: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A worker process; it is dead when the context ends."""
    command = ("-m", "tests.support.fake_worker", job_id)
    with python(*command, environment={**os.environ, **environment}, stdout=None) as process:
        yield process


def owners(deployment: Deployment) -> set[str]:
    with deployment.database.read() as session:
        return claims.owners(session)


def wait_for_new_owner(
    deployment: Deployment, known: set[str], process: subprocess.Popen[str]
) -> str:
    """The id of a worker, `process`, that has just claimed its first shard."""
    while not (new := owners(deployment) - known):
        assert process.poll() is None, "the job ended before all kills"
        time.sleep(0.01)
    [worker_id] = new
    known.add(worker_id)
    return worker_id


def test_workers_that_are_killed_one_after_the_other_lose_and_double_nothing(
    tmp_path: Path, postgres_url: str
) -> None:
    environment = {
        "BATCHJOBS_HOME": str(tmp_path),
        "BATCHJOBS_DATABASE_URL": postgres_url,
        "BATCHJOBS_LEASE_SECONDS": "1",
        "BATCHJOBS_CHECKPOINT_SECONDS": "0.05",
    }
    chance = random.Random(20261130)
    known: set[str] = set()
    died_at_work = 0
    settings = Settings.load(home=tmp_path, database_url=postgres_url)
    with Deployment.open(settings) as deployment, ExitStack() as alive:
        add_models(deployment, MODEL)
        requests = [chat(number) for number in range(LINES)]
        job_id = start_job(deployment, requests, shard_max_lines=16)

        def start_worker() -> tuple[subprocess.Popen[str], str]:
            process = alive.enter_context(worker(job_id, environment))
            return process, wait_for_new_owner(deployment, known, process)

        (tmp_path / "slowly").touch()
        older = start_worker()
        for _ in range(KILLS):
            newer = start_worker()
            time.sleep(chance.uniform(0, 0.5))
            process, worker_id = older
            process.kill()
            process.wait()
            died_at_work += worker_id in owners(deployment)
            older = newer
        (tmp_path / "slowly").unlink()
        assert older[0].wait(timeout=120) == 0
        job = load_job(deployment, job_id)
        records = read_records(deployment, job.output_file_id)
    assert died_at_work
    assert (job.status, job.error_file_id) == (JobState.COMPLETED, None)
    assert [r["custom_id"] for r in records] == [f"line-{number}" for number in range(LINES)]
